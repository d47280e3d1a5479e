// Launches of lowered groups: puts the addresses of a run into the parameters of the loop IR's kernels.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "compiler/loop_ir/lower_group.h"
#include "compiler/targets/cuda/print/plan.h"
#include "compiler/targets/cuda/run/operation.h"

namespace weft::cuda::internal {

/// The kernels of one lowered group, and where their parameters hold addresses.
class GroupLaunches {
 public:
  /// Appends its kernels to `kernels`. `out`: layouts of the results.
  GroupLaunches(const loop_ir::Lowered& low, std::span<const loop_ir::ValueLayout> out, const GpuProperties& gpu,
                int alignment, bool approximate, std::vector<Kernel>* kernels);
  /// A product and its users as one launch (fused_product), printed with symbol() in place of its name.
  GroupLaunches(const loop_ir::Lowered& low, CudaLaunch fused, std::vector<Kernel>* kernels);
  /// The placeholder for the kernel's name, which depends on its text.
  static const char* symbol();
  /// `functions`: one for each kernel of the vector to which the constructor appended.
  void bind(std::span<const Function> functions);
  int64_t scratch_bytes() const { return scratch_bytes_; }
  bool checks_indices() const { return checks_; }

  struct GroupAddresses {
    std::span<void*const> in, out;  // operands and results of the body
    void* tile = nullptr;           // the product whose epilogue this is
    char* scratch = nullptr;
    int32_t* bad = nullptr;
    const void* product[3] = {};  // a, b and offsets of the product that the kernel computes
  };
  void enqueue(const GroupAddresses& at, Stream& stream, const char* op, SourceLine line) const;
  std::vector<LaunchSize> sizes() const;
  void write_parameters(size_t launch, const GroupAddresses& at, char* parameters) const;

 private:
  void add(const loop_ir::Lowered& low, CudaLaunch launch, std::vector<Kernel>* kernels);
  void find_sources(const loop_ir::Lowered& low);
  struct One {
    size_t kernel;  // index in the vector of kernels
    Grid grid;
    int threads, shared_bytes;
    std::vector<char> params;
    std::vector<Pointer> pointers;
    std::vector<Function> function;  // one, once bound
  };
  struct OperandSource {
    bool output = false;
    int index = 0;  // -1: the tile
    int64_t offset = 0;
  };
  std::vector<One> launches_;
  std::vector<OperandSource> sources_;  // index: operand of the kernels
  int64_t scratch_bytes_ = 0;
  bool checks_ = false;
};

/// The view's layout, for lowering.
loop_ir::ValueLayout layout_of(const StridedView& v);

/// A graph of this node, with its operands as inputs.
Ref<Graph> body_of_one(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                       std::span<const StridedView> out);

/// The operation of a body without a product. Throws loop_ir::Unfusable if it cannot be one group.
std::unique_ptr<DeviceOperation> group_operation(const char* name, const Graph& body, std::span<const StridedView> in,
                                                 std::span<const StridedView> out, const GpuProperties& gpu,
                                                 int alignment, const loop_ir::LowerOptions& options = {},
                                                 bool approximate = false);

/// Parts of an operation's scratch memory start at multiples of 256 bytes, as device memory does.
constexpr int64_t round_to_256(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace weft::cuda::internal
