// For tests of passes: random graphs of real ops, random arguments, and bitwise comparison of results.
#pragma once
#include <random>

#include "framework/ir/graph.h"

namespace weft::testing {

/// A valid graph of about `nodes` elementwise ops, casts, views and reductions over small tensors, with constants and
/// with repeated and redundant nodes, as real graphs have. Its outputs are its last values.
Ref<Graph> random_ops_graph(std::mt19937& random, int nodes);

/// Values that stress rewrites: zeros of both signs, infinities, NaN, denormals, extremes, and ordinary numbers.
Tensor random_tensor(std::mt19937& random, const TensorType& type);
std::vector<Tensor> random_arguments(std::mt19937& random, const Graph& g);

/// Empty if equal in type and bits (all NaNs are equal); otherwise the first difference.
std::string difference(const Tensor& a, const Tensor& b);

/// Interprets both graphs on the same arguments. Empty if all outputs are equal.
std::string difference(const Graph& a, const Graph& b, std::span<const Tensor> args);

}  // namespace weft::testing
