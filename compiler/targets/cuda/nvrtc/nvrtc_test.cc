// Kernels through NVRTC: figures from its log, errors that name the kernel and its line, limits, and the cache.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "compiler/jit/cache.h"
#include "compiler/targets/cuda/nvrtc/compile.h"
#include "compiler/targets/cuda/nvrtc/library.h"
#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/nvrtc/testing/opcodes.h"
#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"

#ifdef WEFT_CUDA_HEADERS
#include <nvrtc.h>

#include "framework/cuda/testing/same_abi.h"
#endif

namespace weft::cuda {
namespace {

#ifdef WEFT_CUDA_HEADERS
TEST(Nvrtc, DeclarationsAreTheToolkits) {
#define SAME(name) EXPECT_TRUE((testing::same_abi<decltype(NvrtcTable::name), decltype(&::name)>())) << #name
  SAME(nvrtcVersion);
  SAME(nvrtcGetErrorString);
  SAME(nvrtcGetNumSupportedArchs);
  SAME(nvrtcGetSupportedArchs);
  SAME(nvrtcCreateProgram);
  SAME(nvrtcDestroyProgram);
  SAME(nvrtcCompileProgram);
  SAME(nvrtcGetCUBINSize);
  SAME(nvrtcGetCUBIN);
  SAME(nvrtcGetPTXSize);
  SAME(nvrtcGetPTX);
  SAME(nvrtcGetProgramLogSize);
  SAME(nvrtcGetProgramLog);
#undef SAME
}
#endif

#define NEED_NVRTC() \
  if (!nvrtc().unavailable.empty()) GTEST_SKIP() << nvrtc().unavailable

// y[i] = x[i] * factor + 1. Tests use different factors, so that none finds another's kernels.
Kernel scale(int factor) {
  Kernel k;
  k.symbol = "scale";
  k.text = str_cat(R"(struct P { float* y; const float* x; int n; };
extern "C" __global__ void __launch_bounds__(256) scale(const __grid_constant__ P p) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < p.n) p.y[i] = p.x[i] * )",
                   factor, R"(.0f + 1.0f;
}
)");
  return k;
}

std::string temporary(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string error_of(const Kernel& k, Arch arch, const NvrtcOptions& options = {}) {
  return weft::testing::error_of([&] { compile(std::span(&k, 1), arch, options); });
}

TEST(PtxasLog, FiguresOfTheKernelAsked) {
  const char* log =
      "ptxas info    : 16 bytes gmem, 8 bytes cmem[4]\n"
      "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
      "ptxas info    : Function properties for helper\n"
      "    64 bytes stack frame, 32 bytes spill stores, 32 bytes spill loads\n"
      "ptxas info    : Function properties for first\n"
      "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 3 barriers, 1024 bytes smem, 400 bytes cmem[0]\n"
      "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n"
      "ptxas info    : Function properties for second\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 8 registers, 352 bytes cmem[0]\n";
  const auto first = parse_ptxas_log(log, "first"), second = parse_ptxas_log(log, "second");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->registers, 168);
  EXPECT_EQ(first->stack_bytes, 8);
  EXPECT_EQ(first->spill_store_bytes, 4);
  EXPECT_EQ(first->spill_load_bytes, 12);
  EXPECT_EQ(first->shared_bytes, 1024);
  EXPECT_EQ(first->barriers, 3);
  EXPECT_EQ(second->registers, 8);
  EXPECT_EQ(second->shared_bytes, 0);
  EXPECT_FALSE(parse_ptxas_log(log, "third"));
  EXPECT_FALSE(parse_ptxas_log("ptxas info    : Compiling entry function 'k' for 'sm_80'\n", "k"));
  EXPECT_FALSE(parse_ptxas_log("", "k"));
}

TEST(Limits, ToldWithFigures) {
  Kernel k = scale(0);
  Usage u;
  u.registers = 32;
  EXPECT_EQ(exceeds(k, u, {80}), "");
  k.max_registers = 24;
  EXPECT_EQ(exceeds(k, u, {80}), "uses 32 registers; its limit is 24");
  k.max_registers = 255;
  u.spill_store_bytes = 8;
  u.spill_load_bytes = 12;
  EXPECT_EQ(spills(k, u), "spills 8 bytes and loads 12 back; its limit is 0");
  EXPECT_EQ(exceeds(k, u, {80}), "");  // it runs
  k.max_spill_bytes = 20;
  EXPECT_EQ(spills(k, u), "");
  k.least_registers = 40;
  EXPECT_EQ(exceeds(k, u, {80}), "uses 32 registers; it needs 40");
  k.least_registers = 0;
  k.shared_bytes = 200 * 1024;
  EXPECT_EQ(exceeds(k, u, {80}), "needs 204800 bytes of shared memory; a block has 166912 on sm_80");
  EXPECT_EQ(exceeds(k, u, {90, true}), "");
  k.min_blocks = 2;
  EXPECT_NE(exceeds(k, u, {90, true}), "");
  k.shared_bytes = 0;
  u.registers = 200;
  EXPECT_NE(exceeds(k, u, {90, true}), "");  // 2 x 256 x 200 registers
  u.registers = 128;
  EXPECT_EQ(exceeds(k, u, {90, true}), "");
}

TEST(Nvrtc, AbsentInOneSentence) {
  const Nvrtc n = internal::open_nvrtc({"/nonexistent/libnvrtc.so.13"});
  EXPECT_EQ(n.unavailable,
            "NVRTC, NVIDIA's compiler of kernels, cannot be used: /nonexistent/libnvrtc.so.13 was not found; need CUDA "
            "12 or later, or its path in WEFT_NVRTC");
  // A library that is not NVRTC.
  EXPECT_NE(internal::open_nvrtc({"libm.so.6"}).unavailable.find("lacks nvrtcVersion and 12 more"), std::string::npos);
}

TEST(Nvrtc, CompilesForEveryArchitecture) {
  std::string table;
  std::vector<Kernel> kernels{scale(2)};
  WEFT_EXPECT_COMPILES(kernels, {}, tested_archs(), &table);
  EXPECT_NE(table.find("scale sm_90a: "), std::string::npos) << table;
}

TEST(Nvrtc, CubinsHaveTheSizeOfTheirFirstParameter) {
  NEED_NVRTC();
  Kernel k = scale(20);
  for (const char* struct_of : {"struct P", "struct alignas(64) P"}) {  // the parameters do not begin at 64 bytes
    k.text.replace(0, k.text.find(" {"), struct_of);
    for (const Arch arch : tested_archs())
      EXPECT_EQ(parameter_bytes(compile(std::span(&k, 1), arch).cubins[0]->bytes),
                std::string(struct_of) == "struct P" ? 24u : 64u)
          << arch.name();
  }
}

TEST(Nvrtc, ErrorsNameKernelAndLine) {
  NEED_NVRTC();
  Kernel k = scale(3);
  k.text.replace(k.text.find("p.x[i]"), 6, "p.z[i]");
  const std::string why = error_of(k, {90, true});
  EXPECT_EQ(
      why.find("cuda: kernel scale does not compile for sm_90a: scale.cu(4): error: class \"P\" has no member \"z\""),
      0)
      << why;
  EXPECT_NE(why.find("if (i < p.n) p.y[i] = p.z[i] * 3.0f"), std::string::npos) << why;
  // Only the assembler finds this error.
  Kernel w = scale(4);
  w.text.insert(w.text.find("  if (i"), "  asm volatile(\"wgmma.fence.sync.aligned;\");\n");
  EXPECT_EQ(error_of(w, {90, true}), "");
  EXPECT_NE(error_of(w, {80}).find("wgmma.fence"), std::string::npos);
}

TEST(Nvrtc, RefusesWhatCannotRunThere) {
  NEED_NVRTC();
  Kernel k = scale(5);
  k.only_sm90a = true;
  EXPECT_EQ(error_of(k, {80}), "cuda: kernel scale needs sm_90a; got sm_80");
  EXPECT_NE(error_of(scale(5), {37}), "");
  Kernel tight = scale(5);
  tight.max_registers = 2;
  const std::string why = error_of(tight, {80});
  EXPECT_EQ(why.find("cuda: kernel scale uses "), 0) << why;
  EXPECT_NE(why.find("its limit is 2"), std::string::npos) << why;
}

TEST(Nvrtc, WordsStandBeforeTheKernel) {
  NEED_NVRTC();
  Kernel device = scale(7);
  device.text.replace(device.text.find("p.x[i]"), 6, "w_exp(from_bf16(to_bf16(p.x[i])))");
  EXPECT_EQ(error_of(device, {80}), "");
  Kernel k = scale(6);
  k.text.replace(k.text.find("p.x[i]"), 6, "twice(p.x[i])");
  NvrtcOptions o;
  o.prelude = "__device__ inline float twice(float x) { return x + x; }\n";
  EXPECT_EQ(error_of(k, {80}, o), "");
  EXPECT_NE(error_of(k, {80}), "");
}

TEST(NvrtcCache, MemoryDiskAndDamage) {
  NEED_NVRTC();
  const std::string folder = temporary("cubins");
  NvrtcOptions o;
  o.cache = folder;
  std::vector<Kernel> kernels{scale(10), scale(11), scale(10)};
  kernels[1].symbol = "other";
  kernels[1].text.replace(kernels[1].text.find(" scale("), 7, " other(");
  CompiledKernels c = compile(kernels, {80}, o);
  EXPECT_EQ(c.compiled, 2);
  EXPECT_EQ(c.from_memory, 1);
  EXPECT_EQ(c.cubins[0], c.cubins[2]);
  EXPECT_EQ(c.cubins[0]->bytes.substr(0, 4),
            "\x7f"
            "ELF");
  c = compile(kernels, {80}, o);
  EXPECT_EQ(c.compiled, 0);
  EXPECT_EQ(c.from_memory, 3);
  // Another architecture needs another cubin.
  EXPECT_EQ(compile(kernels, {90, true}, o).compiled, 2);
  EXPECT_EQ(jit::Cache(folder, true, jit::ObjectKind::cubin).size().second, 4);

  internal::forget_compiled();
  CompiledKernels d = compile(kernels, {80}, o);
  EXPECT_EQ(d.from_disk, 2);
  EXPECT_EQ(d.compiled, 0);
  EXPECT_EQ(d.cubins[0]->bytes, c.cubins[0]->bytes);
  EXPECT_EQ(d.cubins[0]->usage.registers, c.cubins[0]->usage.registers);
  EXPECT_EQ(d.cubins[0]->log, c.cubins[0]->log);

  for (const std::string& name : io::list_folder(folder)) {
    std::string bytes = io::read_file(folder + "/" + name);
    bytes[bytes.size() / 2] ^= 1;
    io::write_file_atomic(folder + "/" + name, bytes);
  }
  internal::forget_compiled();
  d = compile(kernels, {80}, o);
  EXPECT_EQ(d.damaged, 2);
  EXPECT_EQ(d.compiled, 2);
  EXPECT_EQ(d.cubins[0]->bytes, c.cubins[0]->bytes);
}

// A message that the assembler only logs is a fault for a kernel that asked for it.
TEST(CompileCheck, FindsProductsThatWaitForEachOtherAndIgnoredRegisterBudgets) {
  NEED_NVRTC();
  Kernel k;
  k.symbol = "hopper";
  k.least_sm = 90;
  k.only_sm90a = true;
  const std::string product = R"(
extern "C" __global__ void __launch_bounds__(128, 1) hopper(float* y) {
  float d[64];
  for (int i = 0; i < 64; ++i) d[i] = y[i];
  const Shared<uint16_t> a = shared_at<uint16_t>(0);
  wgmma_fence(d);
  for (int k = 0; k < 2; ++k) {
    wgmma_bf16<128, 0, 0>(d, wgmma_desc(a, 16 * k, 0, 1024, 128), wgmma_desc(a, 4096, 0, 1024, 128), true);
    /* here */
  }
  wgmma_commit();
  wgmma_wait<0>(d);
  for (int i = 0; i < 64; ++i) y[i] = d[i];
}
)";
  const std::string budgets = R"(
extern "C" __global__ void __launch_bounds__(384, 1) hopper(float* y) {
  if (threadIdx.x < 128) {
    set_max_registers_down<24>();
    y[0] = 1.0f;
    return;
  }
  set_max_registers_up<240>();
  y[threadIdx.x] = 2.0f;
}
)";
  const std::pair<const char*, const char*> faults[] = {{"/* here */", "d[3] += 1.0f;"}, {"(384, 1)", "(384)"}};
  int i = 0;
  for (const std::string& text : {product, budgets}) {
    k.text = text;
    EXPECT_EQ(compile_faults({&k, 1}, {}, {{90, true}}), "");
    const std::string from = faults[i].first;
    k.text.replace(k.text.find(from), from.size(), faults[i++].second);
    const std::string fault = compile_faults({&k, 1}, {}, {{90, true}});
    EXPECT_NE(fault.find("Potential Performance Loss"), std::string::npos) << fault;
  }
}

TEST(NvrtcCache, UnsafeFolderIsRefused) {
  NEED_NVRTC();
  const std::string folder = temporary("open_to_all");
  io::make_folders(folder);
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  NvrtcOptions o;
  o.cache = folder;
  EXPECT_NE(error_of(scale(20), {80}, o).find("is open to other users"), std::string::npos);
}

TEST(NvrtcCache, ManyAtOnceEqualOneByOne) {
  NEED_NVRTC();
  std::vector<Kernel> kernels;
  for (int i = 0; i < 6; ++i) kernels.push_back(scale(30 + i));
  NvrtcOptions one, many;
  one.cache = many.cache = "off";
  one.threads = 1;
  many.threads = 4;
  const CompiledKernels a = compile(kernels, {80}, one);
  internal::forget_compiled();
  CompiledKernels b[2];
  std::thread other([&] { b[1] = compile(kernels, {80}, many); });
  b[0] = compile(kernels, {80}, many);
  other.join();
  for (int i = 0; i < 6; ++i)
    for (const CompiledKernels& c : b) EXPECT_EQ(a.cubins[i]->bytes, c.cubins[i]->bytes);
}

TEST(Nvrtc, NewerThanTheDriverIsSaid) {
  Nvrtc n;
  n.major = 13;
  n.path = "/x/libnvrtc.so.13";
  EXPECT_EQ(unfit_for_driver(n, 13000), "");
  EXPECT_EQ(unfit_for_driver(n, 14010), "");
  EXPECT_EQ(
      unfit_for_driver(n, 12040),
      "NVRTC 13.0 at /x/libnvrtc.so.13 compiles for drivers of CUDA 13.0 or later, and this one is for CUDA 12.4; "
      "need a newer driver, or NVRTC 12 (its path in WEFT_NVRTC)");
}

}  // namespace
}  // namespace weft::cuda
