#include "models/nn/transformer/moe.h"

#include "ops/composite/layers/activation.h"
#include "ops/composite/layers/moe.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"

namespace weft::nn {

MoE::MoE(int64_t dim, const MoEOptions& o, std::source_location loc)
    : router(dim, o.experts, {.bias = false, .std = o.std, .full_precision = true}, loc), options_(o) {
  internal::LineScope line(loc);
  choice_ = ExpertChoice::parse(o.route);
  WEFT_CHECK(o.hidden > 0 && o.top_k >= 1 && o.top_k <= o.experts, "MoE: got hidden ", o.hidden, ", top_k ", o.top_k,
             " of ", o.experts, " experts; need hidden > 0 and 1 <= top_k <= experts");
  w1 = normal_parameter({o.experts, dim, o.hidden}, o.std);
  w3 = normal_parameter({o.experts, dim, o.hidden}, o.std);
  w2 = normal_parameter({o.experts, o.hidden, dim}, o.down_std > 0 ? o.down_std : o.std);
  register_module("router", router);
  register_parameter("w1", w1);
  register_parameter("w3", w3);
  register_parameter("w2", w2);
  if (o.bias_rate > 0) {
    balance = zeros_buffer({o.experts});
    register_buffer("balance", balance);
  }
  if (o.shared_hidden > 0) {
    shared.emplace(dim, o.shared_hidden, SwiGluOptions{.std = o.std, .down_std = o.down_std});
    register_module("shared", *shared);
  }
}

// T tokens, D dim, E experts, F hidden, R = T top_k rows sorted by expert, C capacity of an expert.
MoEOut MoE::operator()(const Arg& arg) const {
  NameScope scope("moe");
  CallScope call(*this, arg.line());
  const MoEOptions& o = options_;
  const Tensor& x = arg.tensor();
  const Tensor x_TD = reshape(x, {-1, x.size(-1)});
  const DType dtype = x.dtype();
  const Tensor logits_TE = [&] {
    const Autocast off(std::nullopt);
    return router(x_TD.to(dtype == kFloat64 ? kFloat64 : kFloat32));
  }();
  const Routing route =
      route_top_k(logits_TE, {.top_k = o.top_k,
                              .score = o.score,
                              .normalize = o.normalize,
                              .scale = o.route_scale,
                              .bias = balance.defined() ? balance.value() : Tensor(),
                              .experts = choice_.learned() ? Tensor() : choice_.choose(logits_TE, o.top_k)});
  const Tensor w1_EDF = w1.value().to(dtype), w3_EDF = w3.value().to(dtype), w2_EFD = w2.value().to(dtype);
  MoEOut result;
  Tensor y_TD;
  if (o.capacity_factor > 0 && is_training()) {
    const int64_t capacity = expert_capacity(x_TD.size(0), o.top_k, o.experts, o.capacity_factor);
    const CapacityPlan plan = assign_capacity(route.experts, o.experts, capacity);
    const Tensor x_ECD = dispatch_to_places(x_TD, plan);
    const Tensor h_ECF = silu(bmm(x_ECD, w1_EDF)) * bmm(x_ECD, w3_EDF);
    y_TD = combine_from_places(bmm(h_ECF, w2_EFD), plan, route.weights);
    result.counts = plan.counts;
    result.dropped = dropped_share(plan);
  } else {
    const ExpertOrder order = sort_by_expert(route.experts, o.experts);
    const Tensor x_RD = dispatch_tokens(x_TD, order);
    const Tensor h_RF = silu(grouped_matmul(x_RD, w1_EDF, order.offsets)) * grouped_matmul(x_RD, w3_EDF, order.offsets);
    y_TD = combine_tokens(grouped_matmul(h_RF, w2_EFD, order.offsets), order, route.weights);
    result.counts = order.counts;
    result.dropped = zeros({}, {.device = x.device()});
  }
  if (shared) y_TD = y_TD + (*shared)(x_TD);
  result.y = reshape(y_TD, x.shape());
  result.aux = zeros({}, {.device = x.device()});
  if (o.aux_loss > 0)
    result.aux =
        result.aux + load_balance_loss(route.probs, result.counts) * (o.aux_loss / static_cast<double>(o.top_k));
  if (o.z_loss > 0) result.aux = result.aux + router_z_loss(logits_TE) * o.z_loss;
  return call.result(result);
}

void MoE::update_balance(const Tensor& counts) const {
  if (balance.defined()) balance.set(update_router_bias(balance, counts, options_.bias_rate));
}

}  // namespace weft::nn
