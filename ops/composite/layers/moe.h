// Routing for mixtures of experts: choosing experts, sorting tokens by expert, capacities, and load balancing. T
// tokens, E experts, k choices per token, C places per expert. Router maths is f32.
#pragma once
#include <string_view>

#include "framework/dispatch/arg.h"
#include "ops/core/indexing/moe.h"

namespace weft {

// ---- choosing experts ----

struct RouteOptions {
  int64_t top_k = 2;
  std::string_view score = "softmax";  // or "sigmoid" (DeepSeek-V3, arXiv:2412.19437)
  bool normalize = true;               // weights of a token sum to 1 (with softmax: Mixtral's softmax over the chosen)
  double scale = 1;                    // factor of the weights
  Tensor bias = {};                    // [E], added to the scores for the choice only (see update_router_bias)
  Tensor experts = {};                 // i64 [T, k]: the choices, whatever the scores are
};
struct Routing {
  Tensor weights;  // f32 [T, k]: differentiable
  Tensor experts;  // i64 [T, k], best first
  Tensor probs;    // f32 [T, E]: all scores; a token's scores sum to 1
};
/// Chooses each token's top_k experts by score, for logits [T, E].
Routing route_top_k(const Arg& logits, const RouteOptions& options = {});

// ---- dropless routing ----

/// Sorts slots (choice j of token t is slot t k + j) by expert, and by slot within an expert: expert_order for any
/// integer dtype.
ExpertOrder sort_by_expert(const Arg& experts, int64_t num_experts);
/// The rows [T k, D] of tokens x [T, D], sorted by expert.
Tensor dispatch_tokens(const Arg& x, const ExpertOrder& order);
/// sum over j of weights[t, j] y[row of slot t k + j]: [T, D] in y's dtype, summed in f32. No atomics.
Tensor combine_tokens(const Arg& y, const ExpertOrder& order, const Arg& weights);

// ---- routing with capacity ----

/// Places per expert: ceil(factor T k / E) (Lepikhin et al. 2020, arXiv:2006.16668), at least 1.
int64_t expert_capacity(int64_t tokens, int64_t top_k, int64_t num_experts, double factor,
                        std::source_location loc = std::source_location::current());

struct CapacityPlan {
  Tensor place;   // i64 [T, k]: expert C + position in it, or E C if there was no room
  Tensor kept;    // bool [T, k]
  Tensor counts;  // i64 [E]: number of choices of each expert, kept or not
  int64_t num_experts = 0, capacity = 0;
};
/// Assigns places: all first choices in token order, then all second choices, ... (GShard's priority).
CapacityPlan assign_capacity(const Arg& experts, int64_t num_experts, int64_t capacity);
/// [E, C, D]: the tokens in their places; zeros in empty places.
Tensor dispatch_to_places(const Arg& x, const CapacityPlan& plan);
/// [T, D]: weighted sum of the experts' results y [E, C, D]; choices without room add nothing.
Tensor combine_from_places(const Arg& y, const CapacityPlan& plan, const Arg& weights);
/// The fraction of choices without room, 0-d f32.
Tensor dropped_share(const CapacityPlan& plan);

// ---- load balance ----

/// The number of choices [T, k] of each expert, i64 [E]: one sum over the tokens, so counts of parts can be added.
Tensor count_experts(const Arg& experts, int64_t num_experts);
/// E sum_e f_e P_e, with f_e the choices of e per token and P_e the mean of probs[:, e] (Fedus et al. 2021,
/// arXiv:2101.03961, eq. 4-6; for k > 1 as in Mixtral: k if the load is balanced). experts: the choices [T, k], or
/// their counts [E].
Tensor load_balance_loss(const Arg& probs, const Arg& experts);
/// mean(logsumexp(logits)^2) (Zoph et al. 2022, arXiv:2202.08906, eq. 5).
Tensor router_z_loss(const Arg& logits);
/// bias + rate sign(mean(counts) - counts): experts with too little load become more likely (Wang et al. 2024,
/// arXiv:2408.15664).
Tensor update_router_bias(const Arg& bias, const Arg& counts, double rate);

}  // namespace weft
