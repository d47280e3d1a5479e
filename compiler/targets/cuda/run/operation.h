// One op on a GPU: prepared once for its types and layouts, then enqueued with addresses as often as wanted. Eager
// calls and compiled steps run the same operations.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/targets/cuda/intrinsics/kernel.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/module.h"
#include "framework/dispatch/target.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// What one run works on.
struct Addresses {
  std::span<void*const> in, out;  // of element 0 of operands and results of the node
  void* workspace = nullptr;      // workspace_bytes(), 256-byte aligned
  int32_t* bad = nullptr;         // a BadIndex in device memory
};

class Operation : public weft::Operation {
 public:
  /// Kernels that have to be bound, in this order, before the first run; none for what libraries do.
  virtual std::span<const Kernel> kernels() const { return {}; }
  virtual void bind(std::span<const Function> functions) { static_cast<void>(functions); }
  /// The name of its first kernel.
  const char* name() const override { return kernels().empty() ? nullptr : kernels().front().symbol.c_str(); }
  /// True once load() bound its kernels.
  bool compiled() const override { return bound_.load(std::memory_order_acquire) || kernels().empty(); }
  void set_bound() { bound_.store(true, std::memory_order_release); }
  /// Whether an index may turn out to be out of range (Addresses::bad is written).
  virtual bool checks_indices() const { return false; }
  /// False where enqueue() waits for the stream (debug_print): no part of a captured graph.
  virtual bool capturable() const { return true; }
  /// Puts the work on the stream and returns; nothing is waited for. `line` is the user's, for messages.
  virtual void enqueue(const Addresses& at, Stream& stream, SourceLine line) const = 0;

 private:
  std::atomic<bool> bound_ = false;
};

/// Choices of the whole step or program.
struct PrepareOptions {
  bool round_like_eager = false;  // fused 16-bit chains round where eager does (numerics = eager)
  bool tf32 = false;         // f32 products on tensor cores with 11 bits of their operands: only if the user chose it
  bool lt_epilogues = true;  // epilogues of products by cuBLASLt where it has them
  Gpu* gpu = nullptr;        // if given, cuBLASLt is asked now what it can do there; else it is taken to do it all
};

/// The operation of a node with operands and results that lie so (addresses are not read; they will be multiples of
/// `alignment` bytes). Throws Unavailable naming the op where CUDA has none.
std::unique_ptr<Operation> prepare(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                   std::span<const StridedView> out, const GpuProperties& gpu, int alignment = 16,
                                   const PrepareOptions& options = {});

/// Compiles what the operations' kernels need (all at once, those that were compiled before excepted) and binds them.
/// Returns the number of kernels that were not loaded before. Throws naming the kernel that does not compile or exceeds
/// the device.
int64_t load(Gpu& gpu, std::span<Operation* const> operations);

}  // namespace weft::cuda
