// For tests: one node prepared, loaded and run on the emulated GPU.
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

/// `in` are tensors of the CPU, copied to the GPU as they lie if contiguous; results have these types, contiguous.
/// Workspace and results hold poison before the run.
OperationRun run_operation(const OpDef& op, const Attrs& attrs, const std::vector<Tensor>& in,
                           const std::vector<TensorType>& out, PrepareOptions options = {});

/// A fused node of what `fn` computes, and the same computed op by op on the CPU.
struct FusedRun {
  OperationRun run;
  std::vector<Tensor> want;
};
FusedRun run_fused(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& fn, const std::vector<Tensor>& in,
                   PrepareOptions options = {});

}  // namespace weft::cuda::testing
