// All the ways a small matrix may lie on a mesh.
#pragma once
#include <vector>

#include "distributed/placement/spec.h"

namespace weft::testing {

/// Every dim over every ordered choice of axes, in blocks, head to tail and as segments; of axes that are left, every
/// choice pending, as sums and, if asked for, as maxima. None twice.
std::vector<dist::Spec> specs(const dist::Mesh& mesh, const Shape& shape, bool maxima = false);

/// A rank's part of a tensor of whole numbers; of what is pending, whole-numbered terms that differ between ranks.
Tensor whole_part(const dist::Mesh& mesh, const dist::Spec& spec, const Tensor& whole, int rank);

}  // namespace weft::testing
