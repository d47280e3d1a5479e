// Several operations with equal kernels as one launch of each kernel. The launch is most of the cost of a small kernel,
// and the optimiser and the norm of a step have hundreds of kernels that differ only in addresses and sizes. The
// parameters of all operations are one array of structs, and a thread block finds its operation by its number.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/targets/cuda/run/operation.h"

namespace weft::cuda {

/// The key of operations that fit one batch: their kernels' texts. Empty if the kernels fit no batch, because they
/// check indices, have grids of two dimensions, or are not ours.
std::string batch_key(const DeviceOperation& operation);

class BatchOperation final : public DeviceOperation {
 public:
  /// For operations with the batch_key of `first`.
  explicit BatchOperation(const DeviceOperation& first);
  std::span<const Kernel> kernels() const override { return kernels_; }
  void bind(std::span<const Function> functions) override { functions_.assign(functions.begin(), functions.end()); }

  struct BatchMember {
    const DeviceOperation* operation;
    Addresses at;
    SourceLine line;
  };
  /// Queues the members, which may run in any order or at once. Their workspaces must be distinct.
  void enqueue(std::span<const BatchMember> members, Stream& stream) const;
  void enqueue(const Addresses& at, Stream& stream, SourceLine line) const override;

 private:
  std::vector<Kernel> kernels_;
  std::vector<Function> functions_;
  std::vector<size_t> most_;  // kernel -> members of a launch
};

}  // namespace weft::cuda
