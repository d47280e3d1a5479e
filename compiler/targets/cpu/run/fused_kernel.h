// FusedKernel: a lowered kernel and how it runs on the thread pool. Any cut into tasks gives the same bits: instances
// are independent, and sums over outer points keep the blocks, lanes and trees of ops/numerics/reduce_order.h.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "compiler/loop_ir/prologue.h"
#include "compiler/targets/cpu/run/host_operation.h"
#include "ops/kernels/products/gemm.h"

namespace weft::internal {

/// The memory of one launch.
struct FusedOperands {
  void* const* ptr = nullptr;            // binding -> the element at position 0 of all axes
  std::span<const StridedView> in, out;  // operands and results of the node
  void* workspace = nullptr;             // workspace_bytes(), 64-byte aligned
  int32_t* bad = nullptr;                // set by run(): becomes 1 where an index is out of range
};

class FusedKernel;

/// A product with the operands that are computed while they are packed.
struct FusedDot {
  Ref<Graph> main;                         // where Lowered::dot is
  loop_ir::Prologue prologue[2];           // without body: from memory
  std::shared_ptr<FusedKernel> kernel[2];  // kernels of the prologues
};

/// Operand or result `index` of the node, from `offset` (elements) on; index < 0: bound by the kernel itself.
struct Binding {
  bool output = false;
  int32_t index = -1;
  int64_t offset = 0;
};

/// One kernel for the layouts it was lowered for. Calls may run side by side, each with its own workspace.
class FusedKernel final : public HostOperation {
 public:
  /// `in` describes the operands of the node as lowered (addresses are not read).
  FusedKernel(Ref<Graph> body, loop_ir::Lowered lowered, std::span<const StridedView> in, FusedDot dot = {});

  const Graph& body() const { return *body_; }
  const loop_ir::Lowered& lowered() const { return lowered_; }
  /// The layouts of the operands for which it was lowered, without addresses.
  std::span<const StridedView> in() const { return in_; }
  const char* name() const override { return name_; }
  /// The kernels for a product's operands, if any are computed.
  const FusedDot& parts() const { return parts_; }
  /// The compiled function; null: the loop IR is interpreted.
  loop_ir::KernelFunction fn() const { return fn_.load(std::memory_order_acquire); }
  void bind(loop_ir::KernelFunction fn) const { fn_.store(fn, std::memory_order_release); }
  int64_t workspace_bytes() const override { return workspace_; }
  bool may_overwrite(int in, int out) const override { return lowered_.may_overwrite(in, out); }
  std::span<const std::string> rounds_less() const override { return lowered_.rounds_less; }
  std::string remark() const override;
  std::string text() const override;
  /// Throws FailedNode with the op's own OutOfRange error if an index is out of range.
  void run(FusedOperands x) const;
  void run(std::span<const StridedView> in, std::span<const StridedView> out, void* workspace) const override;

 private:
  struct Accumulator {  // one column or partial slot
    loop_ir::Type type = loop_ir::Type::f32;
    kernels::Rd rd{};
    int32_t output = 0;
    int64_t size = 4;               // bytes of an element
    int64_t blocks = 0, lanes = 0;  // offsets of block results and lane rows in the workspace
  };

  void call(const loop_ir::Args& a, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1) const;
  loop_ir::Args args(const FusedOperands& x, int64_t slot) const;
  int tasks_wanted(int64_t units) const;
  template <class F>
  void for_units(const FusedOperands& x, int64_t units, const F& f) const;
  void run_all(const FusedOperands& x) const;
  [[noreturn]] void fail_index(const FusedOperands& x) const;
  void run_points(const FusedOperands& x) const;
  void run_columns_by_chunks(const FusedOperands& x) const;
  void run_columns_by_rows(const FusedOperands& x) const;
  void run_split(const FusedOperands& x) const;
  void run_dot(const FusedOperands& x) const;
  void run_grouped(const FusedOperands& x) const;
  void combine_lanes(const Accumulator& a, char* lanes, int64_t row_bytes, int64_t present, int64_t n) const;
  void finish_columns(const FusedOperands& x) const;
  void bind_operands();
  void plan_workspace(std::span<const StridedView> in);
  int fill_cost(int operand) const;
  int touches(const FusedOperands& x, std::span<kernels::GemmEpilogue::Touch> to) const;
  int64_t plan_dot(std::span<const StridedView> in);
  int64_t plan_grouped(std::span<const StridedView> in);

  Ref<Graph> body_;
  loop_ir::Lowered lowered_;
  std::vector<StridedView> in_;
  const char* name_;
  mutable std::atomic<loop_ir::KernelFunction> fn_ = nullptr;  // set once, whenever the kernel is compiled

  std::vector<int64_t> strides_;                 // [operands][axes]
  std::vector<int64_t> index_strides_;           // [operands]
  std::vector<Accumulator> columns_, partials_;  // index: slot
  int64_t points_ = 0, lanes_ = 0, blocks_ = 0;
  bool any_part_of_lanes_ = false;
  double cost_ = 0;               // bytes, arithmetic counted in bytes too
  int64_t chunk_ = 0, wave_ = 0;  // columns: lanes of a task; blocks whose lane rows exist at once
  int64_t slot_bytes_ = 0;        // scratch of a concurrent call
  std::vector<Binding> bindings_;
  FusedDot parts_;
  struct PreparedDot;
  struct OperandFill;
  struct TileEpilogue;
  std::shared_ptr<const PreparedDot> dot_;
  int64_t dot_at_ = 0;  // scratch of the product
  int64_t workspace_ = 0;
};

/// The operation as a fused kernel of the CPU, or null.
inline const FusedKernel* fused_kernel(const Operation* o) { return dynamic_cast<const FusedKernel*>(o); }
/// The same if it has loop IR, which can be printed: kernels of a plan that was read from a file are compiled functions
/// alone.
const FusedKernel* printable_kernel(const Operation* o);
/// The fused kernels among operations. The kernels for a product's operands come before the product's kernel.
std::vector<const FusedKernel*> fused_kernels(std::span<const std::shared_ptr<Operation>> operations);

}  // namespace weft::internal
