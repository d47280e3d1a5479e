#include "compiler/targets/cuda/nvrtc/compile.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "compiler/jit/cache.h"
#include "compiler/jit/jit.h"
#include "compiler/targets/cuda/intrinsics/intrinsics.h"
#include "compiler/targets/cuda/nvrtc/library.h"
#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/switches.h"
#include "framework/io/file.h"

namespace weft::cuda {
namespace {

constexpr std::string_view kFormat = "weft cubin 1";  // format of cached files and of the text around a kernel
constexpr int64_t kMaxCacheBytes = int64_t{256} << 20;
constexpr const char* kPreludeName = "prelude.cuh";

// The cubins that this process has compiled or read. They stay until the process ends.
struct CubinTable {
  Mutex mutex;
  std::map<jit::Key, CubinPtr> cubins WEFT_GUARDED_BY(mutex);
};
CubinTable& table() {
  static CubinTable* t = new CubinTable;
  return *t;
}

// ---- on disk: the usage figures, the log, the machine code ----

struct Head {
  Usage usage;
  uint64_t log_bytes = 0;
};

std::string to_bytes(const Cubin& c) {
  const Head head{c.usage, c.log.size()};
  std::string out(reinterpret_cast<const char*>(&head), sizeof head);
  return out + c.log + c.bytes;
}

CubinPtr from_bytes(const std::string& bytes) {
  Head head;
  if (bytes.size() < sizeof head) return nullptr;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.log_bytes > bytes.size() - sizeof head) return nullptr;
  auto c = std::make_shared<Cubin>();
  c->usage = head.usage;
  c->log = bytes.substr(sizeof head, head.log_bytes);
  c->bytes = bytes.substr(sizeof head + head.log_bytes);
  return c;
}

std::unique_ptr<jit::Cache> open_cache(const NvrtcOptions& options, std::vector<std::string>& notes) {
  const bool asked = !options.cache.empty() || !switch_value("WEFT_CACHE").empty();
  const std::string folder = options.cache.empty() ? jit::default_cache() : options.cache;
  if (folder == "off") return nullptr;
  auto cache = std::make_unique<jit::Cache>(io::resolve_path(folder), asked, jit::ObjectKind::cubin);
  if (!cache->note().empty()) notes.push_back(cache->note());
  return cache;
}

// ---- compiling ----

// The text that NVRTC reads. Lines count from the kernel's first line.
std::string program_text(const Kernel& kernel) {
  return str_cat("#include \"", kPreludeName, "\"\n#line 1 \"", kernel.symbol, ".cu\"\n", kernel.text);
}

const std::string& prelude_of(const Kernel& kernel, const NvrtcOptions& options) {
  return options.prelude ? *options.prelude : intrinsics(level_of(kernel));
}

}  // namespace

std::string source_text(const Kernel& kernel) { return str_cat(prelude_of(kernel, {}), "\n", kernel.text, "\n"); }

namespace {

// Writes the source of a failed kernel to a file for people; returns its path.
std::string keep_source(const Kernel& kernel, Arch arch, const NvrtcOptions& options) {
  std::string text = str_cat("// ", arch.name(), "\n", prelude_of(kernel, options), "\n", kernel.text, "\n");
  std::vector<std::string> folders{switch_value("WEFT_DUMP")};
  for (const char* variable : {"TEST_TMPDIR", "TMPDIR"})
    if (const char* folder = std::getenv(variable)) folders.push_back(folder);
  folders.push_back("/tmp");
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    const std::string path = str_cat(io::resolve_path(folder), "/weft-", kernel.symbol, ".cu");
    try {
      io::write_file_atomic(path, text);
      return path;
    } catch (const Error&) {
    }
  }
  return "(could not be written)";
}

// The compilation of one kernel by NVRTC: the cubin, or the error.
struct KernelCompilation {
  const Kernel* kernel;
  jit::Key key;
  std::shared_ptr<Cubin> cubin;
  std::string failure;
};

void run(KernelCompilation& job, const Nvrtc& n, const std::vector<std::string>& flags, const NvrtcOptions& options) {
  struct ProgramHandle {
    const Nvrtc& n;
    NvrtcProgram* p = nullptr;
    ~ProgramHandle() {
      if (p) n.call.nvrtcDestroyProgram(&p);
    }
  } program{n};
  const Kernel& kernel = *job.kernel;
  const std::string text = program_text(kernel);
  const char* header = prelude_of(kernel, options).c_str();
  std::vector<const char*> flag;
  for (const std::string& f : flags) flag.push_back(f.c_str());
  NvrtcResult result = n.call.nvrtcCreateProgram(&program.p, text.c_str(), str_cat(kernel.symbol, ".cu").c_str(), 1,
                                                 &header, &kPreludeName);
  if (result == kNvrtcSuccess)
    result = n.call.nvrtcCompileProgram(program.p, static_cast<int>(flag.size()), flag.data());
  auto c = std::make_shared<Cubin>();
  size_t bytes = 0;
  if (program.p && n.call.nvrtcGetProgramLogSize(program.p, &bytes) == 0 && bytes > 1) {
    c->log.resize(bytes);
    n.call.nvrtcGetProgramLog(program.p, c->log.data());
    c->log.resize(std::strlen(c->log.c_str()));
  }
  if (result == kNvrtcSuccess) result = n.call.nvrtcGetCUBINSize(program.p, &bytes);
  if (result == kNvrtcSuccess) {
    c->bytes.resize(bytes);
    result = n.call.nvrtcGetCUBIN(program.p, c->bytes.data());
  }
  if (result != kNvrtcSuccess) {
    const std::string_view error = first_error(c->log);
    job.failure = error.empty() ? std::string(n.call.nvrtcGetErrorString(result)) : std::string(error);
    return;
  }
  const auto usage = parse_ptxas_log(c->log, kernel.symbol);
  if (!usage) {
    job.failure = str_cat("NVRTC ", n.version(), " reports no figures for it; its log is: ", c->log);
    return;
  }
  c->usage = *usage;
  job.cubin = std::move(c);
}

void run_all(std::vector<KernelCompilation>& jobs, const Nvrtc& n, const std::vector<std::string>& flags,
             const NvrtcOptions& options) {
  // Longest first, so that no long compilation starts last.
  std::vector<KernelCompilation*> order;
  for (KernelCompilation& job : jobs) order.push_back(&job);
  std::stable_sort(order.begin(), order.end(), [](const KernelCompilation* a, const KernelCompilation* b) {
    return a->kernel->text.size() > b->kernel->text.size();
  });
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < order.size();) {
      try {
        run(*order[i], n, flags, options);
      } catch (const std::exception& error) {
        order[i]->failure = error.what();
      }
    }
  };
  const size_t wanted = options.threads > 0 ? options.threads : jit::usable_cores();
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(wanted, jobs.size()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
}

void check_available(const Nvrtc& n, Arch arch) {
  WEFT_CHECK_AS(kUnavailable, n.unavailable.empty(), n.unavailable);
  if (n.archs.empty() || std::find(n.archs.begin(), n.archs.end(), arch.sm) != n.archs.end()) return;
  std::string known;
  for (int sm : n.archs) known += str_cat(known.empty() ? "" : ", ", sm);
  WEFT_CHECK_AS(kUnimplemented, false, "cuda: NVRTC ", n.version(), " at ", n.path, " does not compile for ",
                arch.name(), "; it knows ", known);
}

// The options that compile() passes to NVRTC, for the intrinsics and the architecture. NVRTC 13 gets two more.
// --no-cache: a kernel from NVRTC's own cache, which is used where there is a driver, has no log and so no figures.
// --minimal: without textures and similar features. It reduced the CPU time of a small kernel from 26 ms to 22, and
// from 42 to 38 with the intrinsics. A precompiled header of the intrinsics would save 4 more, but processes would
// have to share a file.
std::vector<std::string> options_for(Arch arch) {
  std::vector<std::string> out = nvrtc_options();
  out.insert(out.end(), {str_cat("-arch=", arch.name()), "--ptxas-options=-v"});
  if (nvrtc().major >= 13) out.insert(out.end(), {"--minimal", "--no-cache"});
  return out;
}

}  // namespace

std::string exceeds(const Kernel& k, const Usage& u, Arch arch) {
  if (u.registers > k.max_registers) return str_cat("uses ", u.registers, " registers; its limit is ", k.max_registers);
  if (u.registers < k.least_registers) return str_cat("uses ", u.registers, " registers; it needs ", k.least_registers);
  const SharedLimits shared = shared_limits(arch.sm);
  const int bytes = k.shared_bytes + u.shared_bytes;
  if (bytes > shared.block)
    return str_cat("needs ", bytes, " bytes of shared memory; a block has ", shared.block, " on ", arch.name());
  if (k.min_blocks > 1 && k.min_blocks * (bytes + shared.reserved) > shared.multiprocessor)
    return str_cat("declares ", k.min_blocks, " blocks on a multiprocessor with ", bytes, " + ", shared.reserved,
                   " bytes of shared memory each; there are ", shared.multiprocessor, " on ", arch.name());
  const int warps = (k.threads + 31) / 32, lot = (u.registers * 32 + 255) / 256 * 256;
  if (k.min_blocks * warps * lot > kRegistersOfMultiprocessor)
    return str_cat("declares ", k.min_blocks, " blocks of ", k.threads, " threads with ", u.registers,
                   " registers; a multiprocessor has ", kRegistersOfMultiprocessor);
  return "";
}

void internal::forget_compiled() {
  MutexLock lock(table().mutex);
  table().cubins.clear();
}

CompiledKernels compile(std::span<const Kernel> kernels, Arch arch, const NvrtcOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const Nvrtc& n = nvrtc();
  check_available(n, arch);
  for (const Kernel& k : kernels)
    WEFT_CHECK(runs_on(k, arch), "cuda: kernel ", k.symbol, " needs ",
               k.only_sm90a ? std::string("sm_90a") : str_cat("sm_", k.least_sm, " or later"), "; got ", arch.name());

  CompiledKernels out;
  const std::vector<std::string> flags = options_for(arch);
  jit::Key base = continued(jit::Key{}, kFormat);
  base = continued(base, n.version());
  for (const std::string& flag : flags) base = continued(base, flag);
  std::vector<jit::Key> keys;
  for (const Kernel& k : kernels)
    keys.push_back(continued(continued(continued(base, prelude_of(k, options)), k.symbol), k.text));

  out.cubins.resize(kernels.size());
  std::vector<KernelCompilation> jobs;
  std::map<jit::Key, size_t> missing;  // key -> the first kernel with it
  {
    MutexLock lock(table().mutex);
    for (size_t i = 0; i < kernels.size(); ++i) {
      auto it = table().cubins.find(keys[i]);
      if (it != table().cubins.end()) {
        out.cubins[i] = it->second;
        ++out.from_memory;
      } else {
        missing.emplace(keys[i], i);
      }
    }
  }
  std::unique_ptr<jit::Cache> cache;
  std::map<jit::Key, CubinPtr> found;
  if (!missing.empty()) cache = open_cache(options, out.notes);
  for (const auto& [key, i] : missing) {
    CubinPtr c = cache ? from_bytes(cache->read(key, out.damaged)) : nullptr;
    if (c) {
      found.emplace(key, std::move(c));
      ++out.from_disk;
    } else {
      jobs.push_back({&kernels[i], key, nullptr, ""});
    }
  }
  run_all(jobs, n, flags, options);

  std::vector<std::string> bytes;
  std::vector<std::pair<jit::Key, std::string_view>> objects;
  bytes.reserve(jobs.size());
  for (KernelCompilation& job : jobs) {
    if (!job.cubin) continue;
    ++out.compiled;
    if (cache) objects.emplace_back(job.key, bytes.emplace_back(to_bytes(*job.cubin)));
    found.emplace(job.key, std::move(job.cubin));
  }
  if (!objects.empty()) {
    try {
      cache->store(objects);
      cache->shrink(kMaxCacheBytes, {});
    } catch (const Error& error) {
      out.notes.push_back(error.what());
    }
  }
  {
    MutexLock lock(table().mutex);
    for (const auto& [key, cubin] : found) table().cubins.emplace(key, cubin);
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (out.cubins[i]) continue;
    auto it = found.find(keys[i]);
    if (it != found.end()) out.cubins[i] = it->second;
    if (it != found.end() && missing[keys[i]] != i) ++out.from_memory;
  }
  for (const KernelCompilation& job : jobs)
    WEFT_CHECK_AS(kInternal, job.failure.empty(), "cuda: kernel ", job.kernel->symbol, " does not compile for ",
                  arch.name(), ": ", job.failure, "; its source is in ", keep_source(*job.kernel, arch, options),
                  "; this is a bug in Weft");
  for (size_t i = 0; i < kernels.size(); ++i) {
    const std::string why = exceeds(kernels[i], out.cubins[i]->usage, arch);
    WEFT_CHECK_AS(kResourceExhausted, why.empty(), "cuda: kernel ", kernels[i].symbol, " ", why);
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return out;
}

}  // namespace weft::cuda
