// Lowered groups of ops as launches: the layer between loop IR's kernels and the addresses of one run.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "compiler/loop_ir/lower_group.h"
#include "compiler/targets/cuda/print/plan.h"
#include "compiler/targets/cuda/run/operation.h"

namespace weft::cuda::internal {

/// The kernels of one lowered group, and how a run's addresses get into their parameters.
class GroupLaunches {
 public:
  /// Appends its kernels to `kernels`; `out`: how its results lie.
  GroupLaunches(const loop_ir::Lowered& low, std::span<const loop_ir::Layout> out, const GpuProperties& gpu,
                int alignment, std::vector<Kernel>* kernels);
  /// A product and the group behind it as one launch (fused_product), printed with symbol(): its name follows.
  GroupLaunches(const loop_ir::Lowered& low, CudaLaunch fused, std::vector<Kernel>* kernels);
  /// The symbol to print kernels with that are given their name here.
  static const char* symbol();
  /// `functions`: of all kernels of the vector that the constructor appended to.
  void bind(std::span<const Function> functions);
  int64_t scratch_bytes() const { return scratch_bytes_; }
  bool checks_indices() const { return checks_; }

  struct At {
    std::span<void*const> in, out;  // of the body
    void* tile = nullptr;           // the product that it finishes
    char* scratch = nullptr;
    int32_t* bad = nullptr;
    const void* product[3] = {};  // a, b and offsets of the product that it computes itself
  };
  void enqueue(const At& at, Stream& stream, const char* op, SourceLine line) const;

 private:
  void add(const loop_ir::Lowered& low, CudaLaunch launch, std::vector<Kernel>* kernels);
  void find_sources(const loop_ir::Lowered& low);
  struct One {
    size_t kernel;  // of the vector
    Grid grid;
    int threads, shared_bytes;
    std::vector<char> params;
    std::vector<Pointer> pointers;
    std::vector<Function> function;  // one, once bound
  };
  struct Source {
    bool output = false;
    int index = 0;  // -1: the tile
    int64_t offset = 0;
  };
  std::vector<One> launches_;
  std::vector<Source> sources_;  // by operand of the kernels
  int64_t scratch_bytes_ = 0;
  bool checks_ = false;
};

/// How a view lies, for the lowering.
loop_ir::Layout layout_of(const StridedView& v);

/// A graph of this one node, its operands as inputs.
Ref<Graph> body_of_one(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                       std::span<const StridedView> out);

/// The operation of a body without a product. Throws loop_ir::Unfusable where it cannot be one group.
std::unique_ptr<Operation> group_operation(const char* name, const Graph& body, std::span<const StridedView> in,
                                           std::span<const StridedView> out, const GpuProperties& gpu, int alignment,
                                           const loop_ir::LowerOptions& options = {});

/// "Device memory begins at multiples of this": where scratch parts of an operation start.
constexpr int64_t round_to_256(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace weft::cuda::internal
