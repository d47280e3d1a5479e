// score_mods and mask_mods as scalar CUDA functions: a mod's traced graph, and its derivative, printed as a person
// would write them. Indices are computed in 32 bits where their ranges allow.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "framework/ir/graph.h"

namespace weft::cuda {

/// What of a captured tensor's type stands in a mod's text: dtype and rank, but not extents that launches hand over.
std::string table_key(const TensorType& t);

/// How the gradient of one read of a learned table reaches the table.
struct ModRead {
  int table = 0;  // of the score's tables
  /// Of what the position in the table depends: queries, keys, or (alone of the two) how far they lie apart.
  bool rows = false, cols = false, diagonal = false;
};

/// `W_WORD float score_mod(const AttentionParams& p, float score, int b, int h, int q, int kv)`: score is scale q k^T.
/// Throws naming the op and the user's line where a mod has no such form.
std::string score_mod_text(const Graph& mod, std::span<const TensorType> tables);

/// Whether a mask differs from one batch entry, or head, to another.
struct MaskDeps {
  bool batch = false, head = false;
};

/// `W_WORD bool mask_mod(const AttentionParams& p, int b, int h, int q, int kv)`.
std::string mask_mod_text(const Graph& mask, std::span<const TensorType> tables, MaskDeps* deps = nullptr);

struct ScoreGradText {
  /// `float score_mod_grad(p, score, grad, b, h, q, kv)`: the gradient of the score; and if a table is learned,
  /// `void table_grads(p, score, grad, b, h, q, kv, float (&to)[reads])`, `int64 table_at<I>(p, b, h, q, kv)`: the
  /// gradient at each read, and where in its table it was.
  std::string text;
  std::vector<ModRead> reads;
};
ScoreGradText score_grad_text(const Graph& mod, std::span<const TensorType> tables);

}  // namespace weft::cuda
