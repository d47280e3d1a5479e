// flex_attention: attention with any score_mod and any mask, forward and backward, the scores never whole in memory.
#pragma once
#include <optional>

#include "ops/attention/masks.h"
#include "ops/attention/score_mods.h"

namespace weft {

struct FlexAttentionOptions {
  ScoreMod score_mod = {};           // what becomes of each score: [](Score s) { return s.value + slopes[s.h]; }
  BlockMask block_mask = {};         // which keys a query sees, with the blocks found once for many calls
  MaskMod mask_mod = {};             // the same without a block mask: blocks are found in each call
  std::optional<double> scale = {};  // 1 / sqrt(D) unless given
  bool enable_gqa = false;           // k and v have fewer heads: Hq a multiple of Hkv, neighbours share
  double dropout_p = 0;              // of the probabilities, by the generator at the position in [B, Hq, Sq, Skv]
  // Integers [B, n]: k [P, Hkv, page_size, D] and v [P, Hkv, page_size, Dv] are pages. Key j of entry b is row j %
  // page_size of page page_table[b][j / page_size], Skv is n * page_size, and nothing is copied together; where a mask
  // leaves out all keys of an entry's page its number may be anything, as -1.
  Tensor page_table = {};
};

/// softmax(score_mod(scale q k^T) where mask) v for q [B, Hq, Sq, D], k [B or 1, Hkv, Skv, D], v [B or 1, Hkv, Skv,
/// Dv]: [B, Hq, Sq, Dv]. Scores are f32 (f64 for f64, all of them in memory). A query that sees no key gives zeros.
/// Captured tensors of score_mod may need gradients. Throws OutOfRange, naming table, index, place and line, where a
/// mod reads outside a captured table: mask_mod anywhere, score_mod where the mask lets pass.
Tensor flex_attention(const Arg& q, const Arg& k, const Arg& v, const FlexAttentionOptions& options = {});

struct AttentionResult {
  Tensor out;
  Tensor lse;         // [B, Hq, Sq] natural log-sum-exp of the scores, differentiable; -inf where no key is seen
  Tensor max_scores;  // [B, Hq, Sq]; no gradient
};
AttentionResult flex_attention_aux(const Arg& q, const Arg& k, const Arg& v, const FlexAttentionOptions& options = {});

namespace internal {
/// What flex_attention dispatches: attributes and operands of an attention node (f64: of plain_attention).
struct AttentionCall {
  Attrs attrs;
  std::vector<Tensor> operands;
};
/// While it lives, this thread's captures hold f64 attention as nodes too, as what splits attention over ranks needs.
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
