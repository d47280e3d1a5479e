// The process has one table of functions per GPU, keyed by the kernels' text: each kernel is compiled and loaded once.
#include "compiler/targets/cuda/run/operation_load.h"

#include <atomic>
#include <map>
#include <unordered_map>

#include "compiler/targets/cuda/nvrtc/compile.h"
#include "compiler/targets/cuda/nvrtc/library.h"
#include "compiler/targets/cuda/run/operation.h"
#include "framework/base/error.h"
#include "framework/base/mutex.h"

namespace weft::cuda {
namespace {

using FunctionsByName = std::unordered_map<std::string, Function>;

struct KernelsByGpu {
  Mutex mutex;
  std::map<int, FunctionsByName> of_gpu WEFT_GUARDED_BY(mutex);
  internal::KernelCompiler compiler WEFT_GUARDED_BY(mutex);
};
KernelsByGpu& table() {
  static auto* t = new KernelsByGpu;
  return *t;
}
std::atomic<int64_t> compiled_count{0};

void forget_functions() {
  std::map<int, FunctionsByName> old;
  {
    MutexLock lock(table().mutex);
    old.swap(table().of_gpu);
  }
  // Queued work still needs its code.
  for (auto& [index, functions] : old) {
    try {
      Gpu::get(index).synchronize();
    } catch (const Error&) {  // a failed device runs nothing more
    }
  }
}

// A function is compiled for the limits of its launch.
std::string key_of(const Kernel& k) {
  return str_cat(k.symbol, '\n', k.threads, ' ', k.min_blocks, ' ', k.shared_bytes, '\n', k.text);
}

std::vector<std::string> by_nvrtc(std::span<const Kernel> kernels, Arch arch) {
  const std::string unfit = unfit_for_driver(nvrtc(), availability().version);
  WEFT_CHECK_AS(kUnavailable, unfit.empty(), "cuda: ", unfit);
  const CompiledKernels compiled = compile(kernels, arch);
  std::vector<std::string> images;
  for (const CubinPtr& c : compiled.cubins) images.push_back(c->bytes);
  return images;
}

}  // namespace

namespace internal {
void set_kernel_compiler(KernelCompiler compiler) {
  MutexLock lock(table().mutex);
  table().compiler = std::move(compiler);
}
int64_t compiled_kernels() { return compiled_count.load(); }
}  // namespace internal

int64_t load(Gpu& gpu, std::span<DeviceOperation* const> operations) {
  [[maybe_unused]] static const bool registered = (internal::at_driver_change(forget_functions), true);
  KernelsByGpu& t = table();
  // Held during compilation: another thread that needs the same kernels waits instead of compiling them again.
  MutexLock lock(t.mutex);
  FunctionsByName& functions = t.of_gpu[gpu.index()];
  std::vector<Kernel> missing;
  std::vector<std::string> keys;
  std::unordered_map<std::string, bool> asked;
  for (const DeviceOperation* op : operations)
    for (const Kernel& k : op->kernels()) {
      std::string key = key_of(k);
      if (functions.count(key) || !asked.try_emplace(key, true).second) continue;
      missing.push_back(k);
      keys.push_back(std::move(key));
    }
  if (!missing.empty()) {
    const Arch arch = arch_of_device(gpu.properties().sm);
    const std::vector<std::string> images = t.compiler ? t.compiler(missing, arch) : by_nvrtc(missing, arch);
    for (size_t i = 0; i < missing.size(); ++i) {
      auto module = CudaModule::load(gpu, {images[i].data(), images[i].size()}, str_cat("kernel ", missing[i].symbol));
      functions.emplace(keys[i], module->function(missing[i].symbol, missing[i].shared_bytes));
    }
    compiled_count += static_cast<int64_t>(missing.size());
  }
  for (DeviceOperation* op : operations) {
    if (op->compiled()) continue;  // another thread bound it while this one waited
    std::vector<Function> bound;
    for (const Kernel& k : op->kernels()) bound.push_back(functions.at(key_of(k)));
    op->bind(bound);
    op->set_bound();
  }
  return static_cast<int64_t>(missing.size());
}

}  // namespace weft::cuda
