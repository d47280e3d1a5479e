// Types and dim maps of the collectives' records, and access to their attributes.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "framework/dispatch/rank/communicator.h"
#include "framework/ir/op_def.h"

namespace weft::internal {

/// The attribute `op`; throws, naming the record and the four valid values.
ReduceOp reduce_op(const Attrs& attrs, const char* op);
const std::string& axes_of(const Attrs& attrs);
/// The list in an attribute such as `sizes`; empty if absent.
std::vector<int64_t> sizes_of(const Attrs& attrs, std::string_view key);
int64_t total(const std::vector<int64_t>& sizes);

Types infer_all_reduce(const InferCall& c);
Types infer_all_gather(const InferCall& c);
Types infer_reduce_scatter(const InferCall& c);
Types infer_all_to_all(const InferCall& c);
Types infer_all_to_all_rows(const InferCall& c);
Types infer_send(const InferCall& c);
Types infer_rank_coordinate(const InferCall& c);
Types infer_recv_start(const InferCall& c);
DimMap dims_same(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out);
DimMap dims_of_dim(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out);
DimMap dims_all_to_all(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out);
DimMap dims_rows(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out);
DimMap dims_send(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out);

}  // namespace weft::internal
