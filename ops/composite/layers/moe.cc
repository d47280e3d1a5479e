#include "ops/composite/layers/moe.h"

#include <algorithm>
#include <cmath>

#include "framework/base/saturate.h"
#include "framework/dispatch/state/state.h"
#include "ops/composite/indexing.h"
#include "ops/composite/layers/softmax.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using namespace internal;

namespace {

const Tensor& choices_of(const Arg& experts, const char* op) {
  const Tensor& t = tensor_of(experts, op);
  WEFT_CHECK(t.dim() == 2 && is_integral(t.dtype()), op, ": experts is ", t.type(), "; need integers [T, k]");
  return t;
}

const Tensor& matrix_of(const Arg& x, int rank, const char* op, const char* need) {
  const Tensor& t = floating_of(x, op);
  WEFT_CHECK(t.dim() == rank, op, ": operand is ", t.type(), "; need ", need);
  return t;
}

constexpr double kMostPlaces = 0x1p58;  // a tensor has fewer elements

// Choices as i64. A choice that is no expert throws, in compiled functions when they run.
Tensor experts_of(const Tensor& choices, int64_t num_experts, const char* op) {
  WEFT_CHECK(num_experts > 0, op, ": num_experts is ", num_experts, "; need 1 or more");
  return in_range(choices.to(kInt64), num_experts, op);
}

// sum over j of weights[t, j] chosen[t k + j].
Tensor weighted_sum(const Tensor& chosen, const Tensor& weights) {
  const int64_t tokens = weights.size(0), k = weights.size(1), d = chosen.size(-1);
  const Tensor parts = reshape(widened(chosen), {tokens, k, d}) * unsqueeze(weights, -1);
  return sum(parts, 1).to(chosen.dtype());
}

}  // namespace

Routing route_top_k(const Arg& logits, const RouteOptions& options) {
  LineScope line(logits.line());
  const Tensor& t = matrix_of(logits, 2, "route_top_k", "logits [T, E]");
  const bool softmax_score = options.score == "softmax";
  WEFT_CHECK(softmax_score || options.score == "sigmoid", "route_top_k: score is '", options.score,
             "'; need \"softmax\" or \"sigmoid\"");
  WEFT_CHECK(options.top_k >= 1 && options.top_k <= t.size(1), "route_top_k: top_k is ", options.top_k, " of ",
             t.size(1), " experts; need 1 to ", t.size(1));
  const Tensor x = widened(t);
  const Tensor scores = softmax_score ? softmax(x, -1) : sigmoid(x);
  Routing r;
  if (options.experts.defined()) {
    WEFT_CHECK(options.experts.shape() == Shape({t.size(0), options.top_k}), "route_top_k: experts has shape ",
               options.experts.shape(), "; need [", t.size(0), ", ", options.top_k, "]: the choices of each token");
    r.experts = experts_of(options.experts, t.size(1), "route_top_k");
  } else if (options.bias.defined()) {
    const Tensor bias = options.bias.to(dtype_with(options.bias, scores, "route_top_k", "the bias is"));
    NoGrad guard;
    r.experts = topk(scores + bias, options.top_k, -1).indices;
  }
  if (r.experts.defined()) {
    r.weights = gather(scores, -1, r.experts);
  } else {
    TopK best = topk(scores, options.top_k, -1);
    r.weights = best.values;
    r.experts = best.indices;
  }
  if (options.normalize) r.weights = r.weights / sum(r.weights, -1, true);
  if (options.scale != 1) r.weights = r.weights * options.scale;
  r.probs = softmax_score ? scores : scores / sum(scores, -1, true);
  return r;
}

ExpertOrder sort_by_expert(const Arg& experts, int64_t num_experts) {
  LineScope line(experts.line());
  const Tensor& t = choices_of(experts, "sort_by_expert");
  return expert_order(t.dtype() == kInt64 || t.dtype() == kInt32 ? t : t.to(kInt64), num_experts);
}

Tensor dispatch_tokens(const Arg& x, const ExpertOrder& order) {
  LineScope here(x.line());
  matrix_of(x, 2, "dispatch_tokens", "tokens [T, D]");
  return dispatch_rows(x, order);
}

Tensor combine_tokens(const Arg& y, const ExpertOrder& order, const Arg& weights) {
  LineScope here(y.line());
  const Tensor& t = matrix_of(y, 2, "combine_tokens", "rows [T k, D]");
  const Tensor& w = matrix_of(weights, 2, "combine_tokens", "weights [T, k]");
  WEFT_CHECK(t.size(0) == w.numel(), "combine_tokens: ", t.size(0), " rows for weights ", w.shape(),
             "; need T k of them");
  return combine_rows(y, order, weights);
}

int64_t expert_capacity(int64_t tokens, int64_t top_k, int64_t num_experts, double factor, std::source_location loc) {
  LineScope line(loc);
  WEFT_CHECK(tokens >= 0 && top_k >= 0, "expert_capacity: ", tokens, " tokens with ", top_k,
             " choices each; need 0 or more");
  WEFT_CHECK(num_experts > 0 && factor > 0, "expert_capacity: ", num_experts, " experts with factor ", factor,
             "; need positive numbers");
  const double places =
      std::ceil(factor * static_cast<double>(saturating_mul(tokens, top_k)) / static_cast<double>(num_experts));
  WEFT_CHECK(places < kMostPlaces, "expert_capacity: factor ", factor, " gives ", places,
             " places for each expert; need fewer than 2^58: ", tokens, " tokens have ", top_k, " choices each");
  return std::max<int64_t>(1, static_cast<int64_t>(places));
}

Tensor count_experts(const Arg& experts, int64_t num_experts) {
  LineScope line(experts.line());
  const Tensor t = experts_of(choices_of(experts, "count_experts"), num_experts, "count_experts");
  return sum(one_hot(t, num_experts), {0, 1});
}

CapacityPlan assign_capacity(const Arg& experts, int64_t num_experts, int64_t capacity) {
  LineScope line(experts.line());
  const Tensor t = experts_of(choices_of(experts, "assign_capacity"), num_experts, "assign_capacity");
  WEFT_CHECK(capacity >= 1, "assign_capacity: capacity is ", capacity, "; need at least 1");
  WEFT_CHECK(static_cast<double>(saturating_mul(num_experts, capacity)) < kMostPlaces, "assign_capacity: ", num_experts,
             " experts with capacity ", capacity, " have too many places; need fewer than 2^58");
  // Tokens and choices stay separate dims, tokens first: then a rank that has some of the tokens lacks only the sums
  // over the tokens before them.
  const Tensor chosen_TKE = one_hot(t, num_experts), totals_KE = sum(chosen_TKE, 0);
  const Tensor earlier_KE = cumsum(totals_KE, 0) - totals_KE;  // choices of higher priority
  // The number of earlier choices of the same expert.
  const Tensor position_TK = sum((cumsum(chosen_TKE, 0) + earlier_KE) * chosen_TKE, -1) - 1;
  CapacityPlan plan;
  plan.num_experts = num_experts;
  plan.capacity = capacity;
  plan.counts = sum(totals_KE, 0);
  plan.kept = lt(position_TK, capacity);
  plan.place = where(plan.kept, t * capacity + position_TK, num_experts * capacity);
  return plan;
}

Tensor dispatch_to_places(const Arg& x, const CapacityPlan& plan) {
  LineScope line(x.line());
  const Tensor& t = matrix_of(x, 2, "dispatch_to_places", "tokens [T, D]");
  const int64_t tokens = t.size(0), d = t.size(1), k = plan.place.size(1), places = plan.num_experts * plan.capacity;
  const Tensor copies = reshape(expand(unsqueeze(t, 1), {tokens, k, d}), {tokens * k, d});
  // One more place for choices without room.
  const Tensor all = index_add(zeros({places + 1, d}, {.dtype = t.dtype(), .device = t.device()}), 0,
                               reshape(plan.place, {-1}), copies);
  return reshape(slice(all, 0, 0, places), {plan.num_experts, plan.capacity, d});
}

Tensor combine_from_places(const Arg& y, const CapacityPlan& plan, const Arg& weights) {
  LineScope line(y.line());
  const Tensor& t = matrix_of(y, 3, "combine_from_places", "results [E, C, D]");
  const Tensor& w = matrix_of(weights, 2, "combine_from_places", "weights [T, k]");
  const Tensor rows = pad(reshape(t, {plan.num_experts * plan.capacity, t.size(2)}), {0, 0, 0, 1});
  return weighted_sum(index_select(rows, 0, reshape(plan.place, {-1})), w);
}

Tensor dropped_share(const CapacityPlan& plan) {
  NoGrad guard;
  return 1.0 - mean(plan.kept.to(kFloat32));
}

Tensor load_balance_loss(const Arg& probs, const Arg& experts) {
  LineScope line(probs.line());
  const Tensor& p = matrix_of(probs, 2, "load_balance_loss", "probs [T, E]");
  const Tensor& t = tensor_of(experts, "load_balance_loss");
  const int64_t num_experts = p.size(1);
  Tensor counts = t;
  if (t.dim() == 1) {
    WEFT_CHECK(is_integral(t.dtype()) && t.size(0) == num_experts, "load_balance_loss: counts are ", t.type(), " for ",
               num_experts, " experts in probs; need integers [E]");
  } else {
    choices_of(experts, "load_balance_loss");
    WEFT_CHECK(t.size(0) == p.size(0), "load_balance_loss: ", p.size(0), " tokens in probs, ", t.size(0),
               " in experts; need equal numbers");
    counts = sum(one_hot(experts_of(t, num_experts, "load_balance_loss"), num_experts), {0, 1});
  }
  const Tensor x = widened(p);
  const Tensor share = counts.to(x.dtype()) / static_cast<double>(p.size(0));
  return sum(share * mean(x, 0)) * static_cast<double>(num_experts);
}

Tensor router_z_loss(const Arg& logits) {
  LineScope line(logits.line());
  const Tensor& t = matrix_of(logits, 2, "router_z_loss", "logits [T, E]");
  return mean(square(logsumexp(widened(t), -1)));
}

Tensor update_router_bias(const Arg& bias, const Arg& counts, double rate) {
  const FloatingOperand b(bias, "update_router_bias");
  const Tensor& c = tensor_of(counts, "update_router_bias");
  WEFT_CHECK(b.shape() == c.shape(), "update_router_bias: bias has shape ", b.shape(), " and counts ", c.shape(),
             "; need equal shapes");
  NoGrad guard;
  const Tensor n = c.to(kFloat32);
  return b + sign(mean(n) - n) * rate;
}

}  // namespace weft
