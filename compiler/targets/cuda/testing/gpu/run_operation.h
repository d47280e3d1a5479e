// For tests: prepares, loads and runs one node on the emulated GPU.
#pragma once
#include <functional>
#include <vector>

#include "compiler/targets/cuda/run/operation.h"
#include "framework/tensor/tensor.h"

namespace weft::cuda::testing {

struct OperationRun {
  std::vector<Tensor> out;  // on the CPU
  bool bad = false;         // an index was out of range
  int64_t workspace = 0;
  int kernels = 0;
};

/// `in` are CPU tensors, copied to the GPU (with their layout if contiguous). Results have these types and are
/// contiguous. Workspace and results hold poison before the run.
OperationRun run_operation(const OpDef& op, const Attrs& attrs, const std::vector<Tensor>& in,
                           const std::vector<TensorType>& out, OperationOptions options = {});

/// A fused node that computes `fn`, and the same computation op by op on the CPU.
struct FusedRun {
  OperationRun run;
  std::vector<Tensor> want;
};
FusedRun run_fused(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& fn, const std::vector<Tensor>& in,
                   OperationOptions options = {});

}  // namespace weft::cuda::testing
