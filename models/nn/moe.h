// MoE: a mixture of SwiGlu experts. A router picks top_k experts for each token; their results are summed by weight.
#pragma once
#include <optional>
#include <string>

#include "models/nn/mlp.h"

namespace weft::nn {

struct MoEOptions {
  int64_t experts = 8;
  int64_t top_k = 2;
  int64_t hidden = 0;             // of an expert
  int64_t shared_hidden = 0;      // of the expert that serves every token (DeepSeek); 0: none
  double capacity_factor = 0;     // while training an expert takes ceil(factor T top_k / experts) tokens; 0: dropless
  std::string score = "softmax";  // of the router: "softmax" or "sigmoid"
  bool normalize = true;          // weights of a token sum to 1
  double route_scale = 1;         // of the weights
  double aux_loss = 0.01;         // coefficient of the load-balance loss, which is 1 when the load is even
  double z_loss = 0;              // coefficient of mean(logsumexp(router logits)²)
  double bias_rate = 0;           // step of the balancing bias (see update_balance); 0: no bias
  double std = 0.02;              // of the normal initialisation
  double down_std = 0;            // the same of w2; 0: as std
};

struct MoEOut {
  Tensor y;        // of x's shape and dtype
  Tensor aux;      // f32 0-d: both auxiliary losses with their coefficients
  Tensor counts;   // i64 [experts]: choices of each by all tokens of the call: one sum over them, global on any mesh
  Tensor dropped;  // f32 0-d: share of choices that found no room
};

class MoE : public Module {
 public:
  Linear router;     // dim -> experts, computed in f32
  Parameter w1, w3;  // [experts, dim, hidden]: gate and up
  Parameter w2;      // [experts, hidden, dim]: down
  Buffer balance;    // f32 [experts]: added to scores for the choice only; undefined without
  std::optional<SwiGlu> shared;
  MoE(int64_t dim, const MoEOptions& options);
  /// x[..., dim].
  MoEOut operator()(const Arg& x) const;
  /// Moves the bias of each expert by bias_rate towards an even load (Wang et al. 2024), given counts of a whole step:
  /// of its microbatches added up, over all tokens wherever they are. The sign of mean - counts is taken of these sums,
  /// so ranks must not take it of their own ones. Called once per step, after the gradients. Nothing without a bias.
  void update_balance(const Tensor& counts) const;
  const MoEOptions& options() const { return options_; }

 private:
  MoEOptions options_;
};

}  // namespace weft::nn
