// One op on a GPU: prepared once for its types and layouts, then enqueued any number of times with different addresses.
// Eager calls and compiled steps run the same operations.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/targets/cuda/intrinsics/kernel.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/module.h"
#include "framework/dispatch/device/target.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// The memory of one run.
struct Addresses {
  std::span<void*const> in, out;  // element 0 of the node's operands and results
  void* workspace = nullptr;      // workspace_bytes(), 256-byte aligned
  int32_t* bad = nullptr;         // a BadIndex in device memory
};

/// One launch of an operation, without its addresses.
struct LaunchSize {
  size_t kernel = 0;  // index in kernels()
  Grid grid;
  size_t parameter_bytes = 0;
};

class DeviceOperation : public Operation {
 public:
  /// Kernels to bind, in this order, before the first run. Empty for work of libraries.
  virtual std::span<const Kernel> kernels() const { return {}; }
  virtual void bind(std::span<const Function> functions) { static_cast<void>(functions); }
  /// The symbol of the first kernel.
  const char* name() const override { return kernels().empty() ? nullptr : kernels().front().symbol.c_str(); }
  std::string text() const override {
    std::string all;
    for (const Kernel& k : kernels()) all += k.text;
    return all;
  }
  /// True once load() bound its kernels.
  bool compiled() const override { return bound_.load(std::memory_order_acquire) || kernels().empty(); }
  void set_bound() { bound_.store(true, std::memory_order_release); }
  /// Whether its kernels check indices and write Addresses::bad.
  virtual bool checks_indices() const { return false; }
  /// False if enqueue() waits for the stream (debug_print), so that it cannot be part of a captured graph.
  virtual bool capturable() const { return true; }
  /// Its launches, in order, if it is nothing else (batch_operation.h); and the parameters of launch i.
  virtual std::vector<LaunchSize> launch_sizes() const { return {}; }
  virtual void write_parameters(size_t launch, const Addresses& at, char* parameters) const {
    static_cast<void>(launch), static_cast<void>(at), static_cast<void>(parameters);
  }
  /// Queues the work and returns without waiting. `line`: the user's line, for errors.
  virtual void enqueue(const Addresses& at, Stream& stream, SourceLine line) const = 0;

 private:
  std::atomic<bool> bound_ = false;
};

/// Options of the whole step or program.
struct OperationOptions {
  bool round_like_eager = false;  // fused 16-bit chains round where eager does (numerics = eager)
  bool approximate = false;       // functions of f32 by the hardware's approximations; see approximates()
  bool tf32 = false;              // f32 products on tensor cores with 11 bits of their operands
  bool lt_epilogues = true;       // let cuBLASLt compute the epilogues that it supports
  Gpu* gpu = nullptr;             // ask cuBLASLt on this GPU for its support; null: assume that it supports everything
};

/// Whether the kernels of a fused body use approximations. They do if its ops round values to 16 bits, because such
/// kernels have bounds instead of the ops' bits. Other kernels keep the CPU's bits.
bool approximates(const Graph& body, bool round_like_eager);

/// The operation of a node with operands and results of these layouts. Does not read their addresses, which will be
/// multiples of `alignment` bytes. Throws Unavailable, with the op's name, if CUDA has no kernel.
std::unique_ptr<DeviceOperation> prepare(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                         std::span<const StridedView> out, const GpuProperties& gpu, int alignment = 16,
                                         const OperationOptions& options = {});

/// Compiles all kernels of the operations that are not compiled yet, at once, and binds them. Throws an error with the
/// kernel's name if one does not compile or exceeds the device's limits. Returns the number of kernels loaded.
int64_t load(Gpu& gpu, std::span<DeviceOperation* const> operations);

}  // namespace weft::cuda
