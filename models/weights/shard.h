// The pieces of a shard of a cell: a rank of a mesh reads no others.
#pragma once
#include <vector>

#include "framework/tensor/part.h"
#include "models/weights/pieces.h"

namespace weft::weights {

/// Pieces that set the elements of `part` that `piece` sets in a cell of this shape; their memory is row-major and has
/// the shape of the part. The part of a matrix has few pieces, whatever the layout.
std::vector<Piece> pieces_in(const Piece& piece, const Shape& cell, const TensorPart& part);

}  // namespace weft::weights
