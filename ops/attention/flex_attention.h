// flex_attention: attention with any score_mod and any mask, forward and backward; the whole scores never exist in
// memory.
#pragma once
#include <optional>

#include "ops/attention/masks/masks.h"
#include "ops/attention/mods/score_mods.h"

namespace weft {

struct FlexAttentionOptions {
  ScoreMod score_mod = {};           // modifies each score: [](Score s) { return s.value + slopes[s.h]; }
  BlockMask block_mask = {};         // which keys a query sees; its blocks are found once for many calls
  MaskMod mask_mod = {};             // the same without a block mask: each call finds the blocks
  std::optional<double> scale = {};  // default: 1 / sqrt(D)
  bool enable_gqa = false;           // k and v have fewer heads: Hq a multiple of Hkv, neighbours share
  double dropout_p = 0;              // dropout of probabilities, by the random bits at the position in [B, Hq, Sq, Skv]
  // Integers [B, n]: k [P, Hkv, page_size, D] and v [P, Hkv, page_size, Dv] are pages. Key j of entry b is row j %
  // page_size of page page_table[b][j / page_size]; Skv is n * page_size. Pages are not gathered. If all keys of an
  // entry's page are masked, its number may be anything, such as -1.
  Tensor page_table = {};
};

/// softmax(score_mod(scale q k^T) where mask) v for q [B, Hq, Sq, D], k [B or 1, Hkv, Skv, D], v [B or 1, Hkv, Skv,
/// Dv]: [B, Hq, Sq, Dv]. Scores are f32 (f64 for f64, with the whole scores in memory). A query that sees no key gives
/// zeros. Captured tensors of score_mod may require gradients. Throws OutOfRange, naming table, index, position and
/// line, if a mod reads outside a captured table: mask_mod at any point, score_mod at visible points.
Tensor flex_attention(const Arg& q, const Arg& k, const Arg& v, const FlexAttentionOptions& options = {});

struct AttentionResult {
  Tensor out;
  Tensor lse;         // [B, Hq, Sq] natural log-sum-exp of the scores, differentiable; -inf if no key is visible
  Tensor max_scores;  // [B, Hq, Sq]; no gradient
};
AttentionResult flex_attention_aux(const Arg& q, const Arg& k, const Arg& v, const FlexAttentionOptions& options = {});

namespace internal {
/// The call that flex_attention dispatches: attributes and operands of an attention node (f64: of plain_attention).
struct AttentionCall {
  Attrs attrs;
  std::vector<Tensor> operands;
};
/// During its lifetime, captures of this thread keep f64 attention as nodes, too; splitting attention over ranks needs
/// them.
class KeepAttentionNodes {
 public:
  KeepAttentionNodes();
  ~KeepAttentionNodes();
  KeepAttentionNodes(const KeepAttentionNodes&) = delete;

 private:
  bool before_;
};
AttentionCall attention_call(const Tensor& q, const Tensor& k, const Tensor& v, const FlexAttentionOptions& options);
}  // namespace internal

}  // namespace weft
