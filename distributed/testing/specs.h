// All placements of a small matrix on a mesh.
#pragma once
#include <vector>

#include "distributed/placement/spec.h"

namespace weft::testing {

/// Splits every dim over every ordered choice of axes, in blocks, head to tail and as segments. Each subset of the
/// remaining axes is pending, as sums and, with `maxima`, as maxima. No spec occurs twice.
std::vector<dist::Spec> specs(const dist::Mesh& mesh, const Shape& shape, bool maxima = false);

/// A rank's part of a tensor of integers. Pending axes get integer terms that differ between ranks.
Tensor whole_part(const dist::Mesh& mesh, const dist::Spec& spec, const Tensor& whole, int rank);

}  // namespace weft::testing
