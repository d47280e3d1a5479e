// score_mods and mask_mods as scalar CUDA functions: prints a mod's traced graph, and its derivative, as readable code.
// Indices are computed in 32 bits if their ranges allow it.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "framework/ir/graph.h"

namespace weft::cuda {

/// How the gradient of one read of a learned table reaches the table.
struct ModRead {
  int table = 0;  // index of the score's table
  /// Whether the position in the table depends on queries, on keys, or only on their distance (diagonal).
  bool rows = false, cols = false, diagonal = false;
};

/// `W_WORD float score_mod(const AttentionParams& p, float score, int b, int h, int q, int kv)`, where score is scale q
/// k^T. Throws, naming the op and the user's line, if a mod has no such form.
std::string score_mod_text(const Graph& mod, std::span<const TensorType> tables);

/// Whether a mask differs between batch entries, between heads.
struct MaskDeps {
  bool batch = false, head = false;
};

/// `W_WORD bool mask_mod(const AttentionParams& p, int b, int h, int q, int kv)`.
std::string mask_mod_text(const Graph& mask, std::span<const TensorType> tables, MaskDeps* deps = nullptr);

struct ScoreGradText {
  /// `float score_mod_grad(p, score, grad, b, h, q, kv)`: the gradient of the score. If a table is learned, also `void
  /// table_grads(p, score, grad, b, h, q, kv, float (&to)[reads])`, the gradient at each read, and `int64
  /// table_at<I>(p, b, h, q, kv)`, the position of each read in its table.
  std::string text;
  std::vector<ModRead> reads;
};
/// `fixed`: the tables that are not learned, as bits.
ScoreGradText score_grad_text(const Graph& mod, std::span<const TensorType> tables, int64_t fixed);

}  // namespace weft::cuda
