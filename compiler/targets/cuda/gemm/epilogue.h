// Matches the ops after a product with an epilogue of cuBLASLt. The match depends only on the computed values: the
// body's function of one element is evaluated at sample points and compared with the epilogue.
#pragma once
#include <optional>

#include "framework/cuda/libraries/cublaslt.h"
#include "framework/ir/graph.h"

namespace weft::cuda {

/// An epilogue, and the inputs and outputs of the body that it reads and writes; -1: none. Inputs and outputs of the
/// result's shape must be contiguous.
struct LtEpilogue {
  MatmulEpilogue kind = MatmulEpilogue::none;
  double alpha = 1, beta = 0;
  int bias = -1;         // input added to each row; in f32 if the body casts it to the result's dtype first
  int c = -1;            // input times beta
  int aux_input = -1;    // for the backward of gelu: the operand of gelu
  int output = 0;        // the result
  int aux_output = -1;   // the operand of gelu
  int bias_output = -1;  // the sums of the result over rows
};

/// The epilogue of `dot`, a node of a fused body, that computes every output of the body. Empty if cuBLASLt has none,
/// or if it would change bits that must not change. f32 and f64 keep the bits of the separate ops. 16-bit floats round
/// less often, or keep their bits too if `round_like_eager`.
std::optional<LtEpilogue> match_epilogue(const Graph& body, int32_t dot, bool round_like_eager);

}  // namespace weft::cuda
