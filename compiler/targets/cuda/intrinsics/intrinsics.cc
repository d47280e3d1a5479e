#include "compiler/targets/cuda/intrinsics/intrinsics.h"

#include "compiler/targets/cpu/print/scalar_text.h"
#include "compiler/targets/cpu/print/target.h"
#include "compiler/targets/cuda/intrinsics/cuda_texts.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

std::string text(std::string_view file) { return codegen::strip_comments(cuda_texts(file)); }

// wgmma_bf16 and wgmma_f16: one instruction per width, each with a different number of registers.
std::string wgmma() {
  std::string out;
  std::string chain[2];  // A in shared memory, in registers
  for (int n : wgmma_widths()) {
    const int m = n / 2;
    std::string names, operands;
    for (int i = 0; i < m; ++i) {
      names += str_cat(i ? ", %" : "%", i);
      operands += str_cat(i ? ", \"+f\"(d[" : "\"+f\"(d[", i, "])");
    }
    out += str_cat("#define W_NAMES", n, " \"", names, "\"\n#define W_SUMS", n, " ", operands, "\n");
    auto branch = [&](bool registers) {
      // Operands after the accumulators: A (1 or 4), B, accumulate, the transpositions.
      const int b = m + (registers ? 4 : 1);
      std::string text =
          str_cat("  if constexpr (N == ", n, ") asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %", b + 1,
                  ", 0;\\nwgmma.mma_async.sync.aligned.m64n", n, "k16.f32.\" W_TYPE \" {\" W_NAMES", n, " \"}, ");
      if (registers)
        text += str_cat("{%", m, ", %", m + 1, ", %", m + 2, ", %", m + 3, "}, %", b, ", p, 1, 1, %", b + 2,
                        ";\\n}\" : W_SUMS", n,
                        " : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"((int)accumulate), "
                        "\"n\"(trans_b));\n");
      else
        text += str_cat("%", m, ", %", b, ", p, 1, 1, %", b + 2, ", %", b + 3, ";\\n}\" : W_SUMS", n,
                        " : \"l\"(a), \"l\"(b), \"r\"((int)accumulate), \"n\"(trans_a), \"n\"(trans_b));\n");
      return text;
    };
    for (bool registers : {false, true}) chain[registers] += branch(registers);
  }
  for (const char* type : {"bf16", "f16"})
    out += str_cat("#define W_TYPE \"", type, ".", type,
                   "\"\ntemplate <int N, int trans_a = 0, int trans_b = 0>\nW_WORD void wgmma_", type,
                   "(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate) {\n", chain[0],
                   "}\ntemplate <int N, int trans_b = 0>\nW_WORD void wgmma_", type,
                   "(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate) {\n", chain[1],
                   "}\n#undef W_TYPE\n");
  return out;
}

std::string make(IntrinsicsLevel level) {
  std::string out = text("cuda_env") + scalar_intrinsics() + text("base") + shared_intrinsics();
  if (level >= IntrinsicsLevel::kSm80) out += text("sm80");
  if (level >= IntrinsicsLevel::kSm90) out += text("sm90");
  if (level >= IntrinsicsLevel::kSm90a) out += text("sm90a") + wgmma();
  return out + "#line 1\n";
}

}  // namespace

const std::vector<int>& wgmma_widths() {
  static const std::vector<int> widths = {8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256};
  return widths;
}

const std::string& intrinsics(IntrinsicsLevel level) {
  static const std::string texts[] = {make(IntrinsicsLevel::kBase), make(IntrinsicsLevel::kSm80),
                                      make(IntrinsicsLevel::kSm90), make(IntrinsicsLevel::kSm90a)};
  return texts[static_cast<int>(level)];
}

const std::string& scalar_intrinsics() {
  static const std::string all = codegen::prelude(codegen::cpu_scalar()) + text("philox") + text("types");
  return all;
}

const std::string& shared_intrinsics() {
  static const std::string all = text("derived");
  return all;
}

IntrinsicsLevel level_of(const Kernel& kernel) {
  if (kernel.only_sm90a) return IntrinsicsLevel::kSm90a;
  return kernel.least_sm >= 90 ? IntrinsicsLevel::kSm90 : IntrinsicsLevel::kSm80;
}

const std::vector<std::string>& nvrtc_options() {
  static const std::vector<std::string> options = {"--std=c++20", "--fmad=false", "--device-as-default-execution-space",
                                                   "--disable-warnings"};
  return options;
}

}  // namespace weft::cuda
