// MoE: a mixture of SwiGlu experts. A router picks top_k experts for each token; their weighted results are summed.
#pragma once
#include <optional>
#include <string>

#include "models/nn/transformer/expert_choice.h"
#include "models/nn/transformer/mlp.h"

namespace weft::nn {

struct MoEOptions {
  int64_t experts = 8;
  int64_t top_k = 2;
  int64_t hidden = 0;             // hidden size of an expert
  int64_t shared_hidden = 0;      // hidden size of the expert for every token (DeepSeek); 0: no such expert
  double capacity_factor = 0;     // training: an expert accepts ceil(factor T top_k / experts) tokens; 0: all
  std::string score = "softmax";  // scores of the router: "softmax" or "sigmoid"
  bool normalize = true;          // the weights of a token's experts sum to 1
  double route_scale = 1;         // factor of the weights
  double aux_loss = 0.01;         // coefficient of the load-balance loss, which is 1 when the load is even
  double z_loss = 0;              // coefficient of mean(logsumexp(router logits)²)
  double bias_rate = 0;           // step size of the balancing bias (see update_balance); 0: no bias
  std::string route = "learned";  // how tokens choose experts, see ExpertChoice: by the router, or by a fixed law
  double std = 0.02;              // standard deviation of the normal initialisation
  double down_std = 0;            // the same for w2; 0: std
};

struct MoEOut {
  Tensor y;        // has x's shape and dtype
  Tensor aux;      // f32 scalar: sum of both auxiliary losses, each times its coefficient
  Tensor counts;   // i64 [experts]: number of choices of each expert, over all tokens of the call on any mesh
  Tensor dropped;  // f32 scalar: share of choices that exceeded an expert's capacity
};

class MoE : public Module {
 public:
  Linear router;     // dim -> experts, computed in f32
  Parameter w1, w3;  // [experts, dim, hidden]: gate and up
  Parameter w2;      // [experts, hidden, dim]: down
  Buffer balance;    // f32 [experts]: added to scores for the choice only; undefined without bias
  std::optional<SwiGlu> shared;
  MoE(int64_t dim, const MoEOptions& options, std::source_location loc = std::source_location::current());
  /// x[..., dim].
  MoEOut operator()(const Arg& x) const;
  /// Moves the bias of each expert by bias_rate towards an even load (Wang et al. 2024). `counts` is the sum over a
  /// whole step, over its microbatches and the tokens of all ranks, because the sign of mean - counts matters. Call it
  /// once per step, after the gradients. Does nothing without a bias.
  void update_balance(const Tensor& counts) const;
  const MoEOptions& options() const { return options_; }

 private:
  MoEOptions options_;
  ExpertChoice choice_;
};

}  // namespace weft::nn
