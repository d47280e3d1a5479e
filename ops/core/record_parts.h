// Parts that the records of many ops share: checks of operands, types, dim maps, bytes.
#pragma once
#include <string>
#include <vector>

#include "framework/ir/op_def.h"

namespace weft::internal {

/// Dtypes of indices.
constexpr bool is_index(DType t) { return t == kInt64 || t == kInt32; }
/// The floats that kernels compute with; 8-bit floats are for storage only.
constexpr bool is_computed_float(DType t) { return is_floating(t) && itemsize(t) > 1; }
/// The dtype in which sums of `t` are computed.
constexpr DType wide_of(DType t) { return t == kFloat64 ? kFloat64 : kFloat32; }

/// The attribute {dim}; throws if operand 0 does not have this dim.
int checked_dim(const InferCall& c);
/// Throws if operand 0 has a dtype for storage only.
void check_computed(const InferCall& c);
/// Throws if `t` is not a float that kernels compute with.
void check_float(const InferCall& c, DType t);
void check_index(const InferCall& c, const TensorType& index);

/// The number in an attribute that is an integer or a float; 0 if absent.
double number(const Attrs& attrs, const char* key);

/// The dims as bits.
uint32_t mask_of(const Shape& dims);
/// For an order of dims: the order that undoes it.
Shape inverse_order(const Shape& order);
double bytes_of(std::span<const TensorType> types);

/// Type, dim map, derivative and kernel of ops whose result has operand 0's values or type.
Types infer_same(const InferCall& c);
DimMap dims_pointwise(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out);
Grads vjp_same(const VjpCall& c);
void run_copy(const KernelCall& c);

/// Adds the attribute {device}, except for the first CPU device, so that graphs do not print the default.
Attrs with_device(Attrs attrs, Device device);

/// The record of an op that moves elements: no arithmetic, linear in operand 0, and its derivative reads no values.
constexpr OpDef moves(OpDef r) {
  r.flops_per_point = 0;
  r.vjp_reads_in = r.vjp_reads_out = 0;
  r.linear = 1;
  return r;
}

// ---- text of dim maps ----

/// The i-th factor's name: a, b, ..., z, a1, b1, ...
std::string factor_name(int i);
/// The words, separated by spaces.
std::string join_words(const std::vector<std::string>& words);
/// Dims of equal extent pass; other dims are whole, and different in operand and result. Shapes of equal ranks.
std::pair<std::string, std::string> words_of_equal(const Shape& from, const Shape& to);
/// All dims pass except `whole`, which the op needs as a whole.
DimMap dims_with_whole(int whole, std::span<const TensorType> in, std::span<const TensorType> out);
/// The same with the attribute {dim}.
DimMap dims_along(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out);

}  // namespace weft::internal
