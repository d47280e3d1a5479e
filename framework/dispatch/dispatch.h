// The one door for ops: infers types once, then runs the kernel (eager), appends a node (capture), or both records
// and runs (eager with gradients).
#pragma once
#include "framework/dispatch/state/state.h"
#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"

namespace weft {

using TensorPtrs = std::span<const Tensor* const>;

/// Calls an op with one result.
Tensor dispatch(const OpDef& op, TensorPtrs in, const Attrs& attrs = {}, SourceLine line = {});
inline Tensor dispatch(const OpDef& op, std::initializer_list<const Tensor*> in, const Attrs& attrs = {},
                       SourceLine line = {}) {
  return dispatch(op, TensorPtrs(in.begin(), in.size()), attrs, line);
}
/// Calls an op with any number of results.
std::vector<Tensor> dispatch_multi(const OpDef& op, TensorPtrs in, const Attrs& attrs = {}, SourceLine line = {});

/// Calls a pointwise op whose result type the front end already knows (operands checked and promoted by it).
Tensor dispatch_pointwise(const OpDef& op, TensorPtrs in, const TensorType& type, SourceLine line);

namespace internal {
/// The addresses of the tensors of these lists, as dispatch takes operands.
template <class... Lists>
SmallVec<const Tensor*, 8> pointers(const Lists&... lists) {
  SmallVec<const Tensor*, 8> all;
  const auto add = [&](std::span<const Tensor> list) {
    for (const Tensor& t : list) all.push_back(&t);
  };
  (add(lists), ...);
  return all;
}

/// The results of op.decompose. Throws if a program's own op returns other types than these, or calls itself.
std::vector<Tensor> decomposed(const OpDef& op, const Attrs& attrs, std::span<const Tensor> in,
                               std::span<const TensorType> types);
/// The views, allocations and kernel of one eager call, without recording.
void run_eager(const OpDef& op, TensorPtrs in, const Attrs& attrs, std::span<const TensorType> types,
               std::span<Tensor> out);
}  // namespace internal

}  // namespace weft
