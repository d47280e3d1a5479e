// FusedTable: the kernels of a plan's fused nodes on the CPU. Equal bodies over equal layouts are lowered once; equal texts are
// compiled once in a process, all those missing in one batch.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/exec/fused_kernel.h"
#include "compiler/exec/launch_maker.h"
#include "compiler/jit/jit.h"

namespace weft::internal {

class FusedTable final : public LaunchMaker {
 public:
  explicit FusedTable(loop_ir::LowerOptions options = {}) : options_(options) {}

  /// The kernel of a fused node whose operands and results lie so (addresses are not read). Throws CannotLower.
  std::shared_ptr<FusedKernel> get(const Node& n, std::span<const StridedView> in, std::span<const StridedView> out);

  int64_t prepare(Launch& l, const Graph& g, std::span<const StridedView> in,
                  std::span<const StridedView> out) override;
  bool may_overwrite(const Launch& l, int32_t in, int32_t out) const override;
  bool may_spread(const Node&) const override { return true; }
  /// Gives every kernel made so far its function, compiling what is missing; without a compiler they are interpreted.
  LoadReport load(const LoadOptions& options = {}) override;

 private:
  struct Entry {
    std::vector<Shape> strides;
    std::shared_ptr<FusedKernel> kernel;
  };
  uint64_t hash_of(const Ref<Graph>& body);
  std::shared_ptr<FusedKernel> make(const Ref<Graph>& body, std::span<const loop_ir::Layout> in,
                                    std::span<const loop_ir::Layout> out, std::span<const StridedView> views);

  loop_ir::LowerOptions options_;
  std::unordered_multimap<uint64_t, Entry> kernels_;
  std::vector<FusedKernel*> made_;
  std::unordered_map<const Graph*, uint64_t> hashes_;
  std::vector<Ref<Graph>> hashed_;  // kept alive while their addresses are keys
};

/// Tests set it to damage what lowering gives; null else.
extern void (*fault_for_test)(loop_ir::Lowered&);

/// Bytes that tell apart kernels with different code, whatever their names and notes.
std::string kernel_key(const loop_ir::Kernel& k);

}  // namespace weft::internal
