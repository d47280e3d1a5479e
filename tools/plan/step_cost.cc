#include "tools/plan/step_cost.h"

#include <algorithm>
#include <cmath>

#include "compiler/cost/collective_seconds.h"
#include "compiler/cost/roofline.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/simulate.h"
#include "framework/base/error.h"

namespace weft::planner {
namespace {

// Launches of a layer in a microbatch: forward, and backward with its two products for each.
constexpr double kForwardLaunches = 12, kBackwardLaunches = 24;
constexpr double kMasterBytes = 4;  // of the f32 weights that an update makes, and of gradients that ranks reduce
// A collective of NCCL on an H100 has 24 blocks, each of which fills a multiprocessor (NVIDIA developer forum, 337991);
// DeepSeek-V3 gives communication 20 of 132 (arXiv:2412.19437, 3.2.2).
constexpr double kCollectiveMultiprocessors = 24;

double d(int64_t n) { return static_cast<double>(n); }

// One layer of a rank for one microbatch.
struct Layer {
  double forward = 0, input = 0, weight = 0;  // seconds of compute
  double tp_forward = 0, tp_backward = 0;     // exposed seconds
  double cp_forward = 0, cp_backward = 0, ep_forward = 0, ep_backward = 0;
  double contended = 0;                          // the part of it that uses multiprocessors
  double forward_bytes = 0, backward_bytes = 0;  // of these collectives
  double hidden = 0;                             // seconds of these collectives that products or attention hide
  double flops = 0;                              // of products, forward alone
  double kept = 0, input_bytes = 0;              // bytes: for backward; of the input alone
  double dense = 0, experts = 0;                 // parameters that the rank uses
};

class Costs {
 public:
  Costs(const Workload& s, const Candidate& c) : s_(s), c_(c), m_(s.model), e_(d(itemsize(s.activations))) {
    check();
    sequences_ = d(s.batch) / c.data() / d(c.microbatches);
    tokens_ = sequences_ * d(s.sequence) / c.cp;
    stream_ = tokens_ * d(m_.dim) * e_;
  }

  double tokens() const { return tokens_; }
  double stream() const { return stream_; }
  double element() const { return e_; }

  // [m, k] x [k, n], `count` times.
  double product(double m, double n, double k, double count = 1, bool head = false) const {
    const double flops = 2 * count * m * n * k;
    return s_.sharing() * launch_seconds(s_.machine,
                                         {.flops = flops,
                                          .bytes = count * (m * k + k * n + m * n) * e_,
                                          .products = flops,
                                          .product_dtype = head ? s_.activations : s_.products,
                                          .written = count * m * n * e_},
                                         {count, m, n});
  }
  // Elementwise kernels reach what a copy reaches, which Machine::bytes is: 0.9 to 1.05 of it (docs/gpu.md).
  double move(double read, double written) const {
    const ResourceSeconds t = resource_seconds(s_.machine, {.bytes = read + written, .written = written});
    return s_.sharing() * (s_.machine.launch + t.memory * s_.machine.reached);
  }

  double collective(Collective kind, double bytes, int ranks, int stride) const {
    return collective_seconds(kind, bytes, ranks, nodes_spanned(ranks, stride, s_.machine.links.node), s_.machine);
  }

  // A collective over tp beside a product: with rings, all steps but the first hide behind the product's parts.
  double beside(double seconds, double product, Layer& l) const {
    if (!s_.async_tp || c_.tp == 1) return seconds;
    const double part = 1.0 / c_.tp, left = seconds * part + std::max(0.0, (1 - part) * (seconds - product));
    l.hidden += seconds - left;
    return left;
  }

  // A collective over tp in backward that one of a linear layer's two products does not wait for: it runs while that
  // product does, on multiprocessors if it is not sent in parts.
  double behind(double seconds, double product, Layer& l) const {
    if (s_.async_tp) return beside(seconds, product, l);
    const double left = std::max(0.0, seconds - product);
    l.hidden += seconds - left;
    l.contended += seconds - left;
    return left;
  }

  // 8-bit products scale each operand by its largest value: each of the three products reads it twice and writes it.
  double scaled(double elements) const {
    return itemsize(s_.products) < itemsize(s_.activations) ? move(2 * e_ * elements, elements) : 0;
  }

  // y = x w, of a weight that tp splits, with its two products in backward.
  void linear(Layer& l, double rows, double in, double out, double weights, double count = 1) const {
    const double x = scaled(count * rows * in), w = scaled(count * in * out), y = scaled(count * rows * out);
    l.forward += product(rows, out, in, count) + x + w;
    l.input += product(rows, in, out, count) + y + w;
    l.weight += product(out, in, rows, count) + x + y;
    l.flops += 2 * count * rows * in * out;
    l.dense += weights;
  }

  Layer layer(bool expert) const {
    Layer l;
    const double tp = c_.tp, t = tokens_, dim = d(m_.dim), q = d(m_.heads * m_.head_dim) / tp,
                 kv = 2 * d(m_.kv_heads * m_.head_dim) / std::min<double>(tp, d(m_.kv_heads)), own = stream_ / tp;
    // Norms and additions to the residual stream.
    l.forward += 2 * move(2 * own, 2 * own);
    l.input += 2 * move(4 * own, 2 * own);
    linear(l, t, dim, q + kv, dim * (q + kv));
    const double qkv = product(t, q + kv, dim);
    // Rotation of queries and keys.
    l.forward += move((q + kv / 2) * t * e_, (q + kv / 2) * t * e_);
    l.input += move((q + kv / 2) * t * e_, (q + kv / 2) * t * e_);
    attention(l, t, q, kv);
    linear(l, t, q, dim, q * dim);
    const double out = product(t, dim, q);
    l.kept = 2 * own + (2 * q + kv) * t * e_;
    l.input_bytes = own;
    double up = 0, down = 0;
    if (expert) {
      experts(l, up, down);
    } else {
      const double f = d(m_.ffn) / tp, wide = (m_.gated ? 2 : 1) * f;
      linear(l, t, dim, wide, dim * wide);
      l.forward += move(wide * t * e_, f * t * e_);
      l.input += move((wide + f) * t * e_, wide * t * e_);
      linear(l, t, f, dim, f * dim);
      l.kept += wide * t * e_;
      up = product(t, wide, dim), down = product(t, dim, f);
    }
    if (c_.tp > 1) {
      const double gather = collective(Collective::kAllGather, stream_, c_.tp, 1),
                   scatter = collective(Collective::kReduceScatter, stream_, c_.tp, 1);
      l.tp_forward =
          beside(gather, qkv, l) + beside(scatter, out, l) + beside(gather, up, l) + beside(scatter, down, l);
      // Gradients are gathered and scattered likewise, and the inputs of column-parallel products gathered once more:
      // for the gradient of the weight, while that of the input is computed. That one is scattered while the other is.
      l.tp_backward = beside(gather, out, l) + behind(scatter, qkv, l) + beside(gather, down, l) +
                      behind(scatter, up, l) + behind(gather, qkv, l) + behind(gather, up, l);
      l.forward_bytes += 4 * stream_;
      l.backward_bytes += 6 * stream_;
    }
    if (c_.full_recompute) {
      l.input += l.forward;
      l.tp_backward += l.tp_forward;
      l.cp_backward += l.cp_forward;
      l.ep_backward += l.ep_forward;
      l.backward_bytes += l.forward_bytes;
    }
    return l;
  }

  // Of causal queries: half of the scores. Backward computes them again (Dao 2023): 2.5 times the forward's products.
  void attention(Layer& l, double t, double q, double kv) const {
    const double pairs = t * (d(s_.sequence) + 1) / 2, flops = 4 * q * pairs;
    const auto run = [&](double times) {
      const double seconds = launch_seconds(s_.machine, {.flops = times * flops,
                                                         .bytes = times * (2 * q + kv) * t * e_,
                                                         .products = times * flops,
                                                         .product_dtype = s_.activations,
                                                         .written = times * q * t * e_});
      // A ring attends to the part of one rank at a time.
      const double rate = attention_rate(s_.machine, s_.attention, d(s_.sequence) / c_.cp, d(m_.head_dim), times > 1);
      const bool known = rate > 0 && itemsize(s_.activations) == 2;
      return s_.sharing() * (known ? std::max(seconds, s_.machine.launch + times * flops / rate) : seconds);
    };
    const double forward = run(1), backward = run(2.5);
    l.forward += forward;
    l.input += backward;
    l.flops += flops;
    if (c_.cp == 1) return;
    // A ring passes keys and values on while attention works on those before; nothing follows the last ones.
    const double ring = (c_.cp - 1) * collective(Collective::kPermute, kv * t * e_, c_.cp, c_.tp),
                 beside = (c_.cp - 1.0) / c_.cp;
    l.cp_forward = std::max(0.0, ring - beside * forward);
    l.cp_backward = std::max(0.0, 2 * ring - beside * backward);
    l.hidden += 3 * ring - l.cp_forward - l.cp_backward;
    l.forward_bytes += (c_.cp - 1) * kv * t * e_;
    l.backward_bytes += 2 * (c_.cp - 1) * kv * t * e_;
  }

  void experts(Layer& l, double& up, double& down) const {
    const double tp = c_.tp, t = tokens_, dim = d(m_.dim), rows = t * d(m_.top_k), own = d(m_.experts) / c_.ep,
                 f = d(m_.expert_ffn) / tp, each = rows / own;
    const double dense = l.dense;
    linear(l, t, dim, d(m_.experts), dim * d(m_.experts));
    l.forward += 2 * move(rows * dim * e_, rows * dim * e_);  // dispatch and combine
    l.input += 2 * move(rows * dim * e_, rows * dim * e_);
    const double before = l.dense;
    linear(l, each, dim, 2 * f, own * dim * 2 * f, own);
    l.forward += move(2 * f * rows * e_, f * rows * e_);
    l.input += move(3 * f * rows * e_, 2 * f * rows * e_);
    linear(l, each, f, dim, own * f * dim, own);
    l.experts = l.dense - before;
    l.dense = before;
    l.kept += rows * (2 * f + dim) * e_;
    up = product(each, 2 * f, dim, own), down = product(each, dim, f, own);
    if (m_.shared_ffn) {
      const double shared = d(m_.shared_ffn) / tp;
      linear(l, t, dim, 2 * shared, 2 * dim * shared);
      linear(l, t, shared, dim, dim * shared);
      l.kept += 2 * shared * t * e_;
    }
    WEFT_BUG_IF(l.dense < dense, "negative parameters");
    if (c_.ep == 1) return;
    const double exchange = collective(Collective::kAllToAll, rows * dim * e_ / tp, c_.ep, c_.tp * c_.cp);
    l.ep_forward = l.ep_backward = 2 * exchange;
    l.forward_bytes += 2 * rows * dim * e_ / tp;
    l.backward_bytes += 2 * rows * dim * e_ / tp;
  }

  // Logits, loss and their gradients.
  Layer head() const {
    Layer l;
    const double v = d(m_.vocab) / c_.tp, t = tokens_, dim = d(m_.dim);
    l.forward = product(t, v, dim, 1, true) + move(t * v * e_, 0);
    l.input = product(t, dim, v, 1, true) + move(t * v * e_, t * v * e_);
    l.weight = product(v, dim, t, 1, true);
    l.flops = 2 * t * v * dim;
    l.dense = v * dim;
    if (c_.tp > 1) {
      l.tp_forward = collective(Collective::kAllGather, stream_, c_.tp, 1);
      l.tp_backward = 2 * l.tp_forward;
      l.forward_bytes = stream_;
      l.backward_bytes = 2 * stream_;
    }
    return l;
  }

  // Rows of the table, each rank those of its part of the vocabulary.
  Layer embedding() const {
    Layer l;
    const double own = stream_ / c_.tp;
    l.forward = move(own, own);
    l.weight = move(2 * own, own);
    l.dense = d(m_.table_parameters()) / c_.tp;
    if (c_.tp > 1) {
      l.tp_forward = collective(Collective::kReduceScatter, stream_, c_.tp, 1);
      l.tp_backward = collective(Collective::kAllGather, stream_, c_.tp, 1);
      l.forward_bytes = l.backward_bytes = stream_;
    }
    return l;
  }

  int state_group() const { return c_.zero == 3 ? c_.fsdp * c_.cp * c_.ep : c_.dp * c_.cp * c_.ep; }
  int expert_group() const { return c_.zero == 3 ? c_.fsdp : c_.dp; }

  double parameters(const Layer& l) const { return l.dense + l.experts; }
  // Seconds to gather the parameters of a layer, and to reduce its gradients.
  double gather_seconds(const Layer& l) const {
    if (c_.zero != 3) return 0;
    return collective(Collective::kAllGather, l.dense * e_, state_group(), c_.tp) +
           (l.experts > 0 ? collective(Collective::kAllGather, l.experts * e_, c_.fsdp, c_.tp * c_.cp * c_.ep) : 0);
  }
  double reduce_seconds(const Layer& l) const {
    const int inner = c_.tp * c_.cp * c_.ep;
    const Collective kind = c_.zero == 0 ? Collective::kAllReduce : Collective::kReduceScatter;
    double all = collective(kind, l.dense * kMasterBytes, state_group(), c_.tp);
    if (l.experts > 0) all += collective(kind, l.experts * kMasterBytes, expert_group(), inner);
    if (c_.zero == 3 && c_.dp > 1)
      all += collective(Collective::kAllReduce, (l.dense / state_group() + l.experts / c_.fsdp) * kMasterBytes, c_.dp,
                        inner * c_.fsdp);
    return all;
  }

  double send_seconds() const {
    if (c_.pp == 1) return 0;
    return collective(Collective::kSend, stream_ / c_.tp, 2, c_.ranks() / c_.pp);
  }

  // Seconds that compute loses to collectives that run beside it for so long. Parts of products that async_tp sends are
  // copies, which need no multiprocessors.
  double contention(double hidden) const {
    const int all = s_.machine.multiprocessors;
    return all > 0 ? std::max(0.0, hidden) * std::min(0.5, kCollectiveMultiprocessors / all) : 0;
  }

  // Whether a microbatch that is not the last one reduces its gradients too.
  bool reduces_each() const { return c_.zero == 3 && c_.pp == 1; }

 private:
  void check() const {
    const auto divides = [&](int64_t whole, int64_t parts, const char* what) {
      WEFT_CHECK(whole % parts == 0, what, " (", whole, ") does not divide over ", parts);
    };
    WEFT_CHECK(s_.gpus == c_.ranks(), c_.mesh(), " has ", c_.ranks(), " ranks; need ", s_.gpus);
    divides(m_.heads, c_.tp, "heads");
    WEFT_CHECK(
        m_.kv_heads % std::min<int64_t>(c_.tp, m_.kv_heads) == 0 && (c_.tp <= m_.kv_heads || c_.tp % m_.kv_heads == 0),
        "kv_heads (", m_.kv_heads, ") does not divide over ", c_.tp);
    divides(m_.ffn, c_.tp, "ffn");
    divides(m_.expert_ffn, c_.tp, "ffn of experts");
    divides(m_.experts, c_.ep, "experts");
    WEFT_CHECK(c_.ep == 1 || m_.experts > 0, "a model without experts has no ep");
    divides(s_.batch, c_.data(), "batch");
    divides(s_.batch / c_.data(), c_.microbatches, "sequences of a rank");
    divides(s_.sequence, int64_t{1} * (c_.cp > 1 ? 2 : 1) * c_.cp, "sequence");
    WEFT_CHECK(m_.layers >= int64_t{1} * c_.pp * c_.stages_per_rank, m_.layers, " layers are fewer than ",
               c_.pp * c_.stages_per_rank, " stages");
  }

  const Workload& s_;
  const Candidate& c_;
  const ModelShape& m_;
  double e_, sequences_ = 0, tokens_ = 0, stream_ = 0;
};

// Both kinds of layers with the embedding and the head.
struct Model {
  Layer embedding, dense, expert, head;
  int64_t dense_layers, expert_layers;
  bool tied;
  Model(const Workload& s, const Costs& c)
      : embedding(c.embedding()),
        head(c.head()),
        dense_layers(s.model.layers - s.model.expert_layers()),
        expert_layers(s.model.expert_layers()),
        tied(s.model.tied) {
    if (dense_layers) dense = c.layer(false);
    if (expert_layers) expert = c.layer(true);
  }
  const Layer& at(int64_t layer) const { return layer < dense_layers ? dense : expert; }
};

double forward_seconds(const Layer& l) { return l.forward + l.tp_forward + l.cp_forward + l.ep_forward; }
double input_seconds(const Layer& l) { return l.input + l.tp_backward + l.cp_backward + l.ep_backward; }

// One microbatch without pp.
std::vector<Pass> passes_of(const Costs& costs, const Model& model, bool reduce, bool first_gathers) {
  std::vector<Pass> all;
  const int64_t n = model.dense_layers + model.expert_layers;
  for (int64_t i = 0; i < n; ++i) {
    const Layer& l = model.at(i);
    all.push_back({.name = str_cat("forward ", i),
                   .gather = costs.gather_seconds(l),
                   .compute = l.forward,
                   .blocking = forward_seconds(l) - l.forward,
                   .gather_bytes = costs.parameters(l) * costs.element(),
                   .blocking_bytes = l.forward_bytes});
  }
  const Layer& h = model.head;
  all.push_back({.name = "head",
                 .gather = costs.gather_seconds(h),
                 .compute = h.forward + h.input + h.weight,
                 .blocking = h.tp_forward + h.tp_backward,
                 .reduce = reduce ? costs.reduce_seconds(h) : 0,
                 .gather_bytes = costs.parameters(h) * costs.element(),
                 .blocking_bytes = h.forward_bytes + h.backward_bytes,
                 .reduce_bytes = costs.parameters(h) * kMasterBytes});
  for (int64_t i = n - 1; i >= 0; --i) {
    const Layer& l = model.at(i);
    // The last layer's weights are still there.
    all.push_back({.name = str_cat("backward ", i),
                   .gather = i == n - 1 ? 0 : costs.gather_seconds(l),
                   .compute = l.input + l.weight,
                   .blocking = input_seconds(l) - l.input,
                   .reduce = reduce ? costs.reduce_seconds(l) : 0,
                   .gather_bytes = costs.parameters(l) * costs.element(),
                   .blocking_bytes = l.backward_bytes,
                   .reduce_bytes = costs.parameters(l) * kMasterBytes});
  }
  // The embedding has too little work to hide anything: it goes with the first layer. Backward reads no table.
  const Layer& table = model.embedding;
  Pass &first = all.front(), &last = all.back();
  first.gather += costs.gather_seconds(table);
  first.gather_bytes += costs.parameters(table) * costs.element();
  first.compute += table.forward;
  first.blocking += table.tp_forward;
  first.blocking_bytes += table.forward_bytes;
  last.compute += table.weight;
  last.blocking += table.tp_backward;
  last.blocking_bytes += table.backward_bytes;
  if (reduce && !model.tied) {  // else its gradient is part of the head's
    last.reduce += costs.reduce_seconds(table);
    last.reduce_bytes += costs.parameters(table) * kMasterBytes;
  }
  if (!first_gathers) first.gather = 0;
  return all;
}

// One stage of a pipeline for one microbatch.
struct Stage {
  double forward = 0, input = 0, weight = 0;                              // with what they wait for
  double compute = 0, tp = 0, cp = 0, ep = 0, data = 0, all_network = 0;  // parts of the sum
  double contended = 0;                                                   // of what is hidden in layers
  double gather = 0, reduce = 0, kept = 0, dense = 0, experts = 0;
};

void add(Stage& s, const Layer& l, const Costs& costs, const Candidate& c) {
  const double gather = costs.gather_seconds(l), f = forward_seconds(l), i = input_seconds(l);
  // Gathers for each microbatch run ahead of the layer that they are for.
  const double each = c.gather_once ? 0 : std::max(0.0, gather - f) + std::max(0.0, gather - i - l.weight);
  s.forward += f + (c.gather_once ? 0 : std::max(0.0, gather - f));
  s.input += i + (c.gather_once ? 0 : std::max(0.0, gather - i - l.weight));
  s.weight += l.weight;
  s.compute += l.forward + l.input + l.weight;
  s.tp += l.tp_forward + l.tp_backward;
  s.cp += l.cp_forward + l.cp_backward;
  s.ep += l.ep_forward + l.ep_backward;
  s.data += each;
  s.contended += l.contended;
  s.all_network +=
      l.hidden + l.tp_forward + l.tp_backward + l.cp_forward + l.cp_backward + l.ep_forward + l.ep_backward;
  if (!c.gather_once) s.all_network += 2 * gather;
  s.gather += gather;
  s.reduce += costs.reduce_seconds(l);
  s.kept += c.full_recompute ? l.input_bytes : l.kept;
  s.dense += l.dense;
  s.experts += l.experts;
}

// What one rank has in memory: parameters that it uses, and bytes.
struct Held {
  double dense = 0, experts = 0, gathered = 0, kept = 0, working = 0;
};

StepCost cost_of(const Workload& s, const Candidate& c, bool simulate) {
  const Costs costs(s, c);
  const Model model(s, costs);
  const double m = d(c.microbatches), layers = d(s.model.layers), e = costs.element();
  const Layer& largest = model.expert_layers ? model.expert : model.dense;
  StepCost r;
  const double table = d(s.model.table_parameters()) / c.tp, layer_parameters = largest.dense + largest.experts;
  // Logits with their gradients, or one layer's values while it is computed again.
  const double again = c.full_recompute ? largest.kept : 0, stream = 4 * costs.stream() / c.tp,
               logits = std::max(again, 2 * costs.tokens() * d(s.model.vocab) / c.tp * e);
  // Of gathers for each use: a layer beside the next one, or beside a table.
  const double one_ahead = (layer_parameters + std::max(layer_parameters, table)) * e;
  std::vector<Held> ranks;
  double launches = 0;
  if (c.pp == 1) {
    double hidden = 0;
    const auto add_microbatches = [&](double n, bool reduce, bool first) {
      if (n <= 0) return;
      const Timeline t = run_passes(passes_of(costs, model, reduce, first));
      r.compute += n * t.compute;
      r.exposed_data += n * t.exposed;
      const double ahead = first ? 0 : costs.gather_seconds(model.embedding) + costs.gather_seconds(model.at(0));
      r.communication += n * (t.network + t.blocking + ahead);
      hidden += n * (t.network - t.exposed + ahead);
    };
    // Later microbatches gather for their first layer behind backward of the one before.
    add_microbatches(1, m == 1 || costs.reduces_each(), true);
    add_microbatches(m - 2, costs.reduces_each(), false);
    add_microbatches(m == 1 ? 0 : 1, true, false);
    Stage all;
    for (int64_t i = 0; i < s.model.layers; ++i) add(all, model.at(i), costs, c);
    r.communication += m * (all.all_network - all.tp - all.cp - all.ep);
    r.contention = costs.contention(hidden + m * all.contended);
    r.exposed_tp = m * (all.tp + model.head.tp_forward + model.head.tp_backward + model.embedding.tp_forward +
                        model.embedding.tp_backward);
    r.exposed_cp = m * all.cp;
    r.exposed_ep = m * all.ep;
    ranks.push_back({.dense = all.dense + model.head.dense + (s.model.tied ? 0 : table),
                     .experts = all.experts,
                     .gathered = c.zero == 3 ? one_ahead : 0,
                     .kept = all.kept,
                     .working = logits + stream});
    launches = m * layers * (kForwardLaunches + kBackwardLaunches + (c.full_recompute ? kForwardLaunches : 0));
  } else {
    const int stages = c.pp * c.stages_per_rank;
    const double unit = forward_seconds(largest) + input_seconds(largest) + largest.weight;
    const double head = (forward_seconds(model.head) + input_seconds(model.head) + model.head.weight) / unit;
    const std::vector<int64_t> split = stage_layers(s.model.layers, head, stages);
    std::vector<Stage> by_stage(static_cast<size_t>(stages));
    int64_t layer = 0;
    add(by_stage[0], model.embedding, costs, c);
    for (size_t k = 0; k < by_stage.size(); ++k) {
      for (int64_t i = 0; i < split[k]; ++i) add(by_stage[k], model.at(layer++), costs, c);
      if (k + 1 == by_stage.size()) add(by_stage[k], model.head, costs, c);
    }
    const bool vee = c.schedule == "zb_v" || c.schedule == "dualpipe_v";
    const auto rank_of = [&](int stage) {
      const int at = stage % c.pp;
      return vee && stage >= c.pp ? c.pp - 1 - at : at;
    };
    std::vector<Stage> by_rank(static_cast<size_t>(c.pp));
    for (int k = 0; k < stages; ++k) {
      Stage& to = by_rank[static_cast<size_t>(rank_of(k))];
      const Stage& from = by_stage[static_cast<size_t>(k)];
      for (double Stage::*part : {&Stage::forward, &Stage::input, &Stage::weight, &Stage::compute, &Stage::tp,
                                  &Stage::cp, &Stage::ep, &Stage::data, &Stage::all_network, &Stage::contended,
                                  &Stage::gather, &Stage::reduce, &Stage::kept, &Stage::dense, &Stage::experts})
        to.*part += from.*part;
    }
    const Stage& slow = *std::max_element(by_rank.begin(), by_rank.end(), [](const Stage& a, const Stage& b) {
      return a.forward + a.input + a.weight < b.forward + b.input + b.weight;
    });
    const double busy = m * (slow.forward + slow.input + slow.weight);
    r.bubble = bubble_seconds(c.schedule, c.pp, c.stages_per_rank, slow.forward, slow.input, slow.weight);
    if (simulate) {
      namespace pl = dist::pipeline;
      const pl::Table table = pl::make_schedule(
          c.schedule, {.ranks = c.pp, .stages_per_rank = c.stages_per_rank, .microbatches = static_cast<int>(m)});
      pl::Costs times;
      times.times.resize(by_stage.size());
      for (int k = 0; k < stages; ++k) {
        const Stage& from = by_stage[static_cast<size_t>(k)];
        times.time(k, pl::Kind::kForward) = from.forward;
        times.time(k, pl::Kind::kInput) = from.input;
        times.time(k, pl::Kind::kWeight) = from.weight;
        times.time(k, pl::Kind::kBackward) = from.input + from.weight;
      }
      r.bubble = std::max(0.0, pl::simulate(table, pl::Links(stages), times).makespan - busy);
    }
    r.compute = m * slow.compute;
    r.exposed_tp = m * slow.tp;
    r.exposed_cp = m * slow.cp;
    r.exposed_ep = m * slow.ep;
    // The first and the last value pass all stages; the others travel behind work.
    const double send = costs.send_seconds();
    r.exposed_pp = 2 * (stages - 1) * send;
    const double reduced = slow.reduce - slow.reduce / std::max(1.0, d(split[0]) * c.stages_per_rank);
    r.exposed_data = m * slow.data + (c.gather_once ? slow.gather : 0) +
                     std::max(slow.reduce - reduced, slow.reduce - slow.input - slow.weight);
    r.communication =
        m * slow.all_network + (c.gather_once ? slow.gather : 0) + slow.reduce + 2 * m * c.stages_per_rank * send;
    r.contention =
        costs.contention((c.gather_once ? 1 : 2 * m) * slow.gather + slow.reduce - r.exposed_data + m * slow.contended);
    const int last = rank_of(stages - 1);
    for (int k = 0; k < c.pp; ++k) {
      const Stage& one = by_rank[static_cast<size_t>(k)];
      // The ranks of the embedding and of the head have a table each, unless they are one rank and share it.
      Held held{.dense = one.dense - (k == 0 && last == 0 && s.model.tied ? table : 0), .experts = one.experts};
      held.kept = one.kept * alive_microbatches(c.schedule, c.pp, c.stages_per_rank, c.microbatches, k);
      held.working = (k == last ? logits : again) + stream;
      if (c.zero == 3)
        held.gathered = c.gather_once         ? (held.dense + held.experts) * e
                        : k == 0 || k == last ? one_ahead
                                              : 2 * layer_parameters * e;
      ranks.push_back(held);
    }
    launches = m * layers / c.pp * (kForwardLaunches + kBackwardLaunches + (c.full_recompute ? kForwardLaunches : 0));
  }
  const int shard = c.zero == 0 ? 1 : costs.state_group(), expert_shard = c.zero == 0 ? 1 : costs.expert_group();
  double updated = 0, new_weights = 0;
  for (const Held& one : ranks) {
    double state = state_bytes(one.dense, c.zero, shard, e) + state_bytes(one.experts, c.zero, expert_shard, e);
    // Sums over microbatches in f32 stay whole where gradients are reduced at the end.
    if (c.zero == 3 && c.pp > 1)
      state += 4 * ((one.dense - one.dense / shard) + (one.experts - one.experts / expert_shard));
    if (state + one.gathered + one.kept + one.working > r.memory())
      r.state = state, r.gathered = one.gathered, r.kept = one.kept, r.working = one.working;
    updated = std::max(updated, one.dense / shard + one.experts / expert_shard);
    new_weights = std::max(
        new_weights, costs.collective(Collective::kAllGather, one.dense * kMasterBytes, costs.state_group(), c.tp) +
                         (one.experts > 0 ? costs.collective(Collective::kAllGather, one.experts * kMasterBytes,
                                                             costs.expert_group(), c.tp * c.cp * c.ep)
                                          : 0));
  }
  // Reads weights, two moments and gradients, these once more for their norm; writes weights, moments and what layers
  // use. 2.2 ms of GPT-2's step on an H100 (docs/gpu.md): the share of the memory's rate that is `reached`.
  const double written = (12 + (e < 4 ? e : 0)) * updated;
  r.update = s.sharing() * roofline_seconds(s.machine, {.bytes = 20 * updated + written, .written = written});
  if (c.zero == 1) {  // new weights to all
    r.update_gather = new_weights;
    r.exposed_data += new_weights;
    r.communication += new_weights;
  }
  const double device = r.compute + r.contention + r.exposed() + r.bubble + r.update;
  r.step = with_host(device, launches, s.host_seconds);
  r.host = r.step - device;
  return r;
}

}  // namespace

double state_bytes(double n, int zero, double shards, double at_use) {
  const double gradients = 4, moments = at_use >= 4 ? 8 : 12;
  return n * (at_use / (zero >= 3 ? shards : 1) + gradients / (zero >= 2 ? shards : 1) +
              moments / (zero >= 1 ? shards : 1));
}

int nodes_spanned(int ranks, int stride, int node) {
  if (int64_t{1} * (ranks - 1) * stride < node) return 1;
  if (stride >= node) return ranks;
  return static_cast<int>((int64_t{1} * (ranks - 1) * stride) / node + 1);
}

double StepCost::mfu(const Workload& s) const {
  return s.model.training_flops(s.sequence) * s.tokens() / (step * s.gpus / s.sharing() * s.peak_flops());
}
double StepCost::tokens_per_gpu_second(const Workload& s) const { return s.tokens() / (step * s.gpus); }

StepCost step_cost(const Workload& setup, const Candidate& c) { return cost_of(setup, c, false); }
StepCost simulated_cost(const Workload& setup, const Candidate& c) { return cost_of(setup, c, true); }

Timeline step_timeline(const Workload& setup, const Candidate& c) {
  const Costs costs(setup, c);
  return run_passes(passes_of(costs, Model(setup, costs), true, true), true);
}

double product_flops(const Workload& setup, const Candidate& c) {
  const Costs costs(setup, c);
  const Model model(setup, costs);
  return 3 *
         (d(model.dense_layers) * model.dense.flops + d(model.expert_layers) * model.expert.flops + model.head.flops);
}

CollectiveBytes collective_bytes(const Workload& setup, const Candidate& c) {
  const Costs costs(setup, c);
  const Model model(setup, costs);
  const double layers = d(setup.model.layers), e = costs.element(), stream = costs.stream();
  const double parameters = d(model.dense_layers) * model.dense.dense + d(model.expert_layers) * model.expert.dense,
               table = d(setup.model.table_parameters()) / c.tp;
  CollectiveBytes b;
  if (c.tp > 1) {
    b.tp_gathered = (2 * layers + 1 + 4 * layers + 2) * stream;
    b.tp_scattered = (4 * layers + 2) * stream;
  }
  if (c.zero == 3) b.data_gathered = (2 * parameters + 3 * table) * e;  // backward does not read the embedding
  b.data_reduced = (parameters + 2 * table) * kMasterBytes;
  return b;
}

}  // namespace weft::planner
