// For the tests of passes: random graphs of real ops, random arguments, and results compared by bits.
#pragma once
#include <random>

#include "framework/ir/graph.h"

namespace weft::testing {

/// A valid graph of about `nodes` nodes of elementwise ops, casts, views and reductions over small tensors, with
/// constants, repeated and pointless nodes as real graphs have. Outputs are its last few values.
Ref<Graph> random_ops_graph(std::mt19937& random, int nodes);

/// Values that try rules: zeros of both signs, infinities, NaN, denormals, extremes, and ordinary numbers.
Tensor random_tensor(std::mt19937& random, const TensorType& type);
std::vector<Tensor> random_arguments(std::mt19937& random, const Graph& g);

/// Empty if equal in type and bits (NaNs are one), else what differs first.
std::string difference(const Tensor& a, const Tensor& b);

/// Interprets both graphs on the same arguments; empty if all outputs are equal.
std::string difference(const Graph& a, const Graph& b, std::span<const Tensor> args);

}  // namespace weft::testing
