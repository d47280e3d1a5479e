// FusedTable: the kernels of a plan's fused nodes. Equal bodies over equal layouts are lowered once; equal texts are
// compiled once in a process, all those missing in one batch.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/exec/fused_kernel.h"
#include "compiler/jit/jit.h"

namespace weft::internal {

/// What load() did.
struct LoadReport {
  int64_t kernels = 0;   // distinct texts of this plan
  int64_t compiled = 0;  // of these, by a compiler now
  int64_t from_disk = 0;
  double ms = 0;
  std::vector<std::string> notes;  // what does not work as it could: no compiler, no cache folder
};

/// Thrown where a body cannot be one kernel for the layouts that the plan has.
struct CannotLower {
  Ref<Graph> body;
  std::string why;
};

class FusedTable {
 public:
  explicit FusedTable(kir::LowerOptions options = {}) : options_(options) {}

  /// The kernel of a fused node whose operands and results lie so (addresses are not read). Throws CannotLower.
  std::shared_ptr<FusedKernel> get(const Node& n, std::span<const StridedView> in, std::span<const StridedView> out);

  /// Gives every kernel made so far its function, compiling what is missing; without a compiler they are interpreted.
  LoadReport load(const jit::Options& options = {});

 private:
  struct Entry {
    std::vector<Shape> strides;
    std::shared_ptr<FusedKernel> kernel;
  };
  uint64_t hash_of(const Ref<Graph>& body);
  std::shared_ptr<FusedKernel> make(const Ref<Graph>& body, std::span<const kir::Layout> in,
                                    std::span<const kir::Layout> out, std::span<const StridedView> views);

  kir::LowerOptions options_;
  std::unordered_multimap<uint64_t, Entry> kernels_;
  std::vector<FusedKernel*> made_;
  std::unordered_map<const Graph*, uint64_t> hashes_;
  std::vector<Ref<Graph>> hashed_;  // kept alive while their addresses are keys
};

/// Tests set it to damage what lowering gives; null else.
extern void (*fault_for_test)(kir::Lowered&);

/// Bytes that tell apart kernels with different code, whatever their names and notes.
std::string kernel_key(const kir::Kernel& k);

}  // namespace weft::internal
