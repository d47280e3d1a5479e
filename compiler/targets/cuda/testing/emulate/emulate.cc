#include "compiler/targets/cuda/testing/emulate/emulate.h"

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "compiler/jit/jit.h"
#include "compiler/targets/cpu/print/target.h"
#include "compiler/targets/cuda/intrinsics/intrinsics.h"
#include "compiler/targets/cuda/testing/emulate/block.h"
#include "compiler/targets/cuda/testing/emulate/emulated_texts.h"
#include "framework/base/error.h"
#include "framework/base/mutex.h"

namespace weft::cuda {

const std::string& Emulated::intrinsics() {
  auto text = [](const char* name) { return std::string(emulated_texts(name)); };
  // The scalar maths choose fused operations by __CUDA_ARCH__. The kernel's own a*b+c is not fused, as with
  // --fmad=false.
  static const std::string all = text("env") + scalar_intrinsics() + text("abi") + text("base") + shared_intrinsics() +
                                 text("sm80") + text("sm90") + R"(
template <class P>
__attribute__((no_sanitize("thread"))) void weft_enter(void (*kernel)(P), const void* params, const Host* host,
                                                       Thread*** current) {
  if (!host && !params) {
    *(unsigned long*)current = sizeof(P);
  } else if (host) {
    weft_services = *host;
    weft_own = host->own;
    weft_own_bytes = host->own_bytes;
    *current = &weft_running;
  } else {
    kernel(*(const P*)params);
  }
}
)";
  return all;
}

Emulated::Emulated(std::span<const Kernel> kernels, const EmulatedOptions& options)
    : options_(options), block_(std::make_unique<Block>()) {
  jit::KernelRequest request;
  request.prelude = intrinsics();
  request.isa = selected_isa();
  // The sanitizers report every access of a kernel, and accesses that a device refuses (error 716): see base.inc.
  request.flags = {"-fsanitize=thread", "-fsanitize=alignment", "-fno-sanitize-recover=alignment"};
  for (const Kernel& k : kernels) {
    WEFT_CHECK(k.threads >= 32 && k.threads <= 1024 && k.threads % 32 == 0, "emulated kernel ", k.symbol, ": ",
               k.threads, " threads; need a multiple of 32 up to 1024");
    WEFT_CHECK(k.shared_bytes >= 0 && k.shared_bytes <= 232448, "emulated kernel ", k.symbol, ": ", k.shared_bytes,
               " bytes of shared memory; there are at most 232448");
    WEFT_CHECK(kernels_.try_emplace(k.symbol, Loaded{k, nullptr}).second, "emulated kernels: two are called ",
               k.symbol);
    request.kernels.push_back({str_cat("weft_enter_", k.symbol),
                               str_cat(k.text, "\nextern \"C\" void weft_enter_", k.symbol,
                                       "(const void* params, const Host* host, Thread*** current) { weft_enter(",
                                       k.symbol, ", params, host, current); }\n")});
  }
  const jit::Loaded loaded = jit::load(request);
  WEFT_CHECK_AS(kUnavailable, loaded.unavailable.empty(), "emulated kernels: ", loaded.unavailable);
  for (size_t i = 0; i < kernels.size(); ++i) {
    void* entry = loaded.functions[i];
    WEFT_CHECK_AS(kUnavailable, entry, "emulated kernel ", kernels[i].symbol, ": ",
                  loaded.notes.empty() ? "was not compiled" : loaded.notes[0]);
    kernels_.at(kernels[i].symbol).entry = entry;
  }
}

Emulated::~Emulated() = default;
Emulated::Emulated(Emulated&&) noexcept = default;

void Emulated::launch(const std::string& symbol, Grid grid, std::span<const std::byte> params) {
  const auto it = kernels_.find(symbol);
  WEFT_CHECK(it != kernels_.end(), "emulated kernels: none is called ", symbol);
  WEFT_CHECK(grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.y <= 65535 && grid.z <= 65535, "emulated kernel ",
             symbol, ": a grid of ", grid.x, " x ", grid.y, " x ", grid.z, " blocks; need 1 to 65535 in y and z");
  WEFT_CHECK(params.size() <= 4096, "emulated kernel ", symbol, ": ", params.size(), " bytes of parameters, over 4096");
  // The structures of kernels are at most as aligned as a TensorMap.
  alignas(128) std::byte bytes[4096];
  if (!params.empty()) std::memcpy(bytes, params.data(), params.size());
  static Mutex one_at_a_time;
  MutexLock lock(one_at_a_time);
  const std::string wrong =
      block_->launch(it->second.kernel, reinterpret_cast<abi::Entry>(it->second.entry), grid, bytes,
                     static_cast<int>(params.size()), options_.races, options_.seed, ranges_);
  WEFT_CHECK_AS(kFailedPrecondition, wrong.empty(), wrong);
}

void Emulated::allow(const std::string& name, const void* begin, size_t bytes, bool writable) {
  ranges_.push_back({name, static_cast<const char*>(begin), bytes, writable});
}
void Emulated::forget_ranges() { ranges_.clear(); }
size_t Emulated::parameter_bytes(const std::string& symbol) const {
  unsigned long bytes = 0;
  reinterpret_cast<abi::Entry>(kernels_.at(symbol).entry)(nullptr, nullptr, reinterpret_cast<abi::Thread***>(&bytes));
  return bytes;
}
int64_t Emulated::steps() const { return block_->counts.steps; }
int64_t Emulated::bank_conflicts() const { return block_->counts.bank_conflicts; }

}  // namespace weft::cuda
