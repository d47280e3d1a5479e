// The ops behind a product, as one of cuBLASLt's epilogues. They are known by what they compute, not by how they are
// written: the body's function of one element is evaluated at points and compared with what the epilogue gives there.
#pragma once
#include <optional>

#include "framework/cuda/cublaslt.h"
#include "framework/ir/graph.h"

namespace weft::cuda {

/// An epilogue and which inputs and outputs of the body it reads and writes; -1: none. Inputs and outputs that lie like
/// the product's result must be contiguous.
struct LtEpilogue {
  MatmulEpilogue kind = MatmulEpilogue::none;
  double alpha = 1, beta = 0;
  int bias = -1;         // input added to each row
  int c = -1;            // input times beta
  int aux_input = -1;    // of gelu's backward: what gelu took
  int output = 0;        // the result
  int aux_output = -1;   // what gelu takes
  int bias_output = -1;  // the result's sums over rows
};

/// The epilogue of `dot`, a node of a fused body, whose every output it makes; none if cuBLASLt has no such epilogue or
/// would change bits that must not change: f32 and f64 keep those of the ops one after another; 16-bit floats round
/// less often, or, if `round_like_eager`, keep theirs too.
std::optional<LtEpilogue> match_epilogue(const Graph& body, int32_t dot, bool round_like_eager);

}  // namespace weft::cuda
