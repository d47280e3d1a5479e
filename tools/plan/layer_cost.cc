#include "tools/plan/layer_cost.h"

#include <algorithm>

#include "compiler/cost/roofline.h"
#include "framework/base/error.h"
#include "framework/base/small_vec.h"

namespace weft::planner {
namespace {

// A collective of NCCL on an H100 has 24 blocks, each of which fills a multiprocessor (NVIDIA developer forum, 337991);
// DeepSeek-V3 gives communication 20 of 132 (arXiv:2412.19437, 3.2.2).
constexpr double kCollectiveMultiprocessors = 24;

double d(int64_t n) { return static_cast<double>(n); }

}  // namespace

int nodes_spanned(int ranks, int stride, int node) {
  if (int64_t{1} * (ranks - 1) * stride < node) return 1;
  if (stride >= node) return ranks;
  return static_cast<int>((int64_t{1} * (ranks - 1) * stride) / node + 1);
}

Costs::Costs(const Workload& s, const Candidate& c)
    : s_(s),
      c_(c),
      m_(s.model),
      element_(d(itemsize(s.activations))),
      tokens_(d(s.batch) / c.data() / d(c.microbatches) * d(s.sequence) / c.cp),
      stream_(tokens_ * d(m_.dim) * element_) {}

void Costs::check_divides() const {
  const auto divides = [&](int64_t whole, int64_t parts, const char* what) {
    WEFT_CHECK(whole % parts == 0, what, " (", whole, ") does not divide over ", parts);
  };
  WEFT_CHECK(s_.gpus == c_.ranks(), c_.mesh(), " has ", c_.ranks(), " ranks; need ", s_.gpus);
  divides(m_.heads, c_.tp, "heads");
  WEFT_CHECK(
      m_.kv_heads % std::min<int64_t>(c_.tp, m_.kv_heads) == 0 && (c_.tp <= m_.kv_heads || c_.tp % m_.kv_heads == 0),
      "kv_heads (", m_.kv_heads, ") does not divide over ", c_.tp);
  bool experts = false;
  for (const Block& b : m_.blocks)
    for (const Product& p : b.products) {
      if (p.split == Product::kRows && !p.attended) divides(p.in, c_.tp, p.experts ? "ffn of experts" : "ffn");
      if (p.experts) divides(p.experts, c_.ep, "experts");
      experts |= p.experts > 0;
    }
  WEFT_CHECK(c_.ep == 1 || experts, "a model without experts has no ep");
  divides(s_.batch, c_.data(), "batch");
  divides(s_.batch / c_.data(), c_.microbatches, "sequences of a rank");
  divides(s_.sequence, int64_t{1} * (c_.cp > 1 ? 2 : 1) * c_.cp, "sequence");
  const int64_t layers = m_.layers(), stages = int64_t{1} * c_.pp * c_.stages_per_rank;
  WEFT_CHECK(layers >= stages, layers, " layers are fewer than ", stages, " stages");
}

// [m, k] x [k, n], `count` times.
double Costs::product(double m, double n, double k, double count, bool head) const {
  const double flops = 2 * count * m * n * k;
  return s_.sharing() * launch_seconds(s_.machine,
                                       {.flops = flops,
                                        .bytes = count * (m * k + k * n + m * n) * element_,
                                        .products = flops,
                                        .product_dtype = head ? s_.activations : s_.products,
                                        .written = count * m * n * element_},
                                       {count, m, n});
}

// Elementwise kernels reach 0.9 to 1.05 of the rate of a copy, Machine::bytes (docs/gpu.md).
double Costs::move(double read, double written) const {
  const ResourceSeconds t = resource_seconds(s_.machine, {.bytes = read + written, .written = written});
  return s_.sharing() * (s_.machine.launch + t.memory * s_.machine.reached);
}

double Costs::collective(Collective kind, double bytes, int ranks, int stride) const {
  return collective_seconds(kind, bytes, ranks, nodes_spanned(ranks, stride, s_.machine.links.node), s_.machine);
}

// A collective over tp beside a product. In a ring, the product's parts hide all steps but the first.
double Costs::beside(double seconds, double product, double& hidden) const {
  if (!s_.async_tp || c_.tp == 1) return seconds;
  const double part = 1.0 / c_.tp, left = seconds * part + std::max(0.0, (1 - part) * (seconds - product));
  hidden += seconds - left;
  return left;
}

// A collective over tp in backward beside one of a linear layer's two products, which does not wait for it. The
// collective uses multiprocessors if it is not sent in parts.
double Costs::behind(double seconds, double product, Layer& l) const {
  if (s_.async_tp) return beside(seconds, product, l.hidden_backward);
  const double left = std::max(0.0, seconds - product);
  l.hidden_backward += seconds - left;
  l.contended += seconds - left;
  return left;
}

// 8-bit products scale each operand by its largest value: each of the three products reads it twice and writes it.
double Costs::scaled(double elements) const {
  return itemsize(s_.products) < itemsize(s_.activations) ? move(2 * element_ * elements, elements) : 0;
}

// y = x w with its two products in backward. Returns the seconds of the product in forward alone.
double Costs::linear(Layer& l, double rows, double in, double out, double count) const {
  const double x = scaled(count * rows * in), w = scaled(count * in * out), y = scaled(count * rows * out),
               forward = product(rows, out, in, count);
  l.forward += forward + x + w;
  l.input += product(rows, in, out, count) + y + w;
  l.weight += product(out, in, rows, count) + x + y;
  l.flops += 2 * count * rows * in * out;
  return forward;
}

// A product of the rank's part of a weight, with the attention after it and the kept part of its result.
double Costs::product_of(Layer& l, const Block& b, const Product& p) const {
  const double tp = c_.tp, rows = tokens_ * d(p.rows);
  double in = d(p.in), out = d(p.out), kept = 0;
  if (p.split == Product::kColumns) {
    const double kv = d(p.kv) / std::min(tp, d(m_.kv_heads)), q = d(b.attended) / tp;
    out = d(p.out - p.kv) / tp + kv;
    kept = p.kv > 0 ? out + q : out;
    if (p.kv > 0) attention(l, rows, q, kv);
  } else if (p.split == Product::kRows) {
    in = d(p.in) / tp;
    if (p.experts) kept = out;  // for the gradients of the experts' shares
  }
  l.kept += kept * rows * element_;
  const double own = d(p.experts) / c_.ep;  // weights of this rank
  if (p.experts) {
    l.experts += own * in * out;
    return linear(l, rows / own, in, out, own);
  }
  l.dense += in * out;
  return linear(l, rows, in, out, 1);
}

Layer Costs::layer(const Block& block) const {
  Layer l;
  const double own = stream_ / c_.tp;
  struct Stage {
    double up = 0, down = 0;  // seconds of products by columns and by rows
  };
  SmallVec<Stage, 4> stages;
  int stage = -1;
  double dispatched = 0;  // bytes of the rows that experts read
  for (const Product& p : block.products) {
    if (p.stage != stage) stages.push_back({}), stage = p.stage;
    const double seconds = product_of(l, block, p);
    if (p.split == Product::kColumns) stages.back().up += seconds;
    if (p.split == Product::kRows) stages.back().down += seconds;
    if (p.split == Product::kColumns && p.experts) dispatched += tokens_ * d(p.rows) * d(p.in) * element_;
  }
  for (const Move& m : block.moves) {
    const double bytes = tokens_ / c_.tp * element_, read = m.read * bytes, written = m.written * bytes;
    l.forward += move(read, written);
    l.input += move(written + (m.linear ? 0 : read), read);  // reads the results' gradients
  }
  const double gather = c_.tp == 1 ? 0 : collective(Collective::kAllGather, stream_, c_.tp, 1),
               scatter = c_.tp == 1 ? 0 : collective(Collective::kReduceScatter, stream_, c_.tp, 1);
  for (const Stage& s : stages) {
    l.kept += own;
    if (c_.tp == 1) continue;
    // Gradients are gathered and scattered likewise. The inputs of column-parallel products are gathered again for the
    // weight's gradient, while the input's gradient is computed; the input's gradient is scattered while the weight's
    // gradient is computed.
    l.tp_forward += beside(gather, s.up, l.hidden_forward) + beside(scatter, s.down, l.hidden_forward);
    l.tp_backward += beside(gather, s.down, l.hidden_backward) + behind(scatter, s.up, l) + behind(gather, s.up, l);
    l.forward_bytes += 2 * stream_;
    l.backward_bytes += 3 * stream_;
  }
  l.input_bytes = own;
  if (dispatched > 0 && c_.ep > 1) {  // rows of tokens go to their experts and come back
    const double bytes = dispatched / c_.tp;
    l.ep_forward = l.ep_backward = 2 * collective(Collective::kAllToAll, bytes, c_.ep, c_.tp * c_.cp);
    l.forward_bytes += 2 * bytes;
    l.backward_bytes += 2 * bytes;
  }
  if (c_.full_recompute) {
    l.input += l.forward;
    l.tp_backward += l.tp_forward;
    l.cp_backward += l.cp_forward;
    l.ep_backward += l.ep_forward;
    l.hidden_backward += l.hidden_forward;
    l.backward_bytes += l.forward_bytes;
  }
  return l;
}

// Causal queries need half of the scores. Backward recomputes them (Dao 2023): 2.5 times the forward's products.
void Costs::attention(Layer& l, double t, double q, double kv) const {
  const double pairs = t * (d(s_.sequence) + 1) / 2, flops = 4 * q * pairs;
  const auto run = [&](double times) {
    const double seconds = launch_seconds(s_.machine, {.flops = times * flops,
                                                       .bytes = times * (2 * q + kv) * t * element_,
                                                       .products = times * flops,
                                                       .product_dtype = s_.activations,
                                                       .written = times * q * t * element_});
    // A ring attends to one rank's part at a time.
    const double rate = attention_rate(s_.machine, s_.attention, d(s_.sequence) / c_.cp, d(m_.head_dim), times > 1);
    const bool known = rate > 0 && itemsize(s_.activations) == 2;
    return s_.sharing() * (known ? std::max(seconds, s_.machine.launch + times * flops / rate) : seconds);
  };
  const double forward = run(1), backward = run(2.5);
  l.forward += forward;
  l.input += backward;
  l.flops += flops;
  if (c_.cp == 1) return;
  // A ring transfers the next keys and values while attention works on the current ones; nothing follows the last ones.
  const double ring = (c_.cp - 1) * collective(Collective::kPermute, kv * t * element_, c_.cp, c_.tp),
               beside = (c_.cp - 1.0) / c_.cp;
  l.cp_forward = std::max(0.0, ring - beside * forward);
  l.cp_backward = std::max(0.0, 2 * ring - beside * backward);
  l.hidden_forward += ring - l.cp_forward;
  l.hidden_backward += 2 * ring - l.cp_backward;
  l.forward_bytes += (c_.cp - 1) * kv * t * element_;
  l.backward_bytes += 2 * (c_.cp - 1) * kv * t * element_;
}

// Logits, loss and their gradients.
Layer Costs::head() const {
  Layer l;
  const double v = d(m_.vocab) / c_.tp, t = tokens_, dim = d(m_.dim);
  l.forward = product(t, v, dim, 1, true) + move(t * v * element_, 0);
  l.input = product(t, dim, v, 1, true) + move(t * v * element_, t * v * element_);
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

// Rows of the table; each rank has its part of the vocabulary.
Layer Costs::embedding() const {
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

// Seconds to gather the parameters of a layer, and to reduce its gradients.
double Costs::gather_seconds(const Layer& l) const {
  if (c_.zero != 3) return 0;
  return collective(Collective::kAllGather, l.dense * element_, state_group(), c_.tp) +
         (l.experts > 0 ? collective(Collective::kAllGather, l.experts * element_, c_.fsdp, c_.tp * c_.cp * c_.ep) : 0);
}

double Costs::reduce_seconds(const Layer& l) const {
  const int inner = c_.tp * c_.cp * c_.ep;
  const Collective kind = c_.zero == 0 ? Collective::kAllReduce : Collective::kReduceScatter;
  double all = collective(kind, l.dense * kMasterBytes, state_group(), c_.tp);
  if (l.experts > 0) all += collective(kind, l.experts * kMasterBytes, expert_group(), inner);
  if (c_.zero == 3 && c_.dp > 1)
    all += collective(Collective::kAllReduce, (l.dense / state_group() + l.experts / c_.fsdp) * kMasterBytes, c_.dp,
                      inner * c_.fsdp);
  return all;
}

double Costs::send_seconds() const {
  if (c_.pp == 1) return 0;
  return collective(Collective::kSend, stream_ / c_.tp, 2, c_.ranks() / c_.replica / c_.pp);
}

double Costs::replica_bytes(const Layer& l) const {
  if (c_.replica == 1) return 0;
  return kMasterBytes * (c_.zero == 0 ? l.parameters() : l.dense / state_group() + l.experts / expert_group());
}

double Costs::replica_seconds(const Layer& l) const {
  const double bytes = replica_bytes(l);
  if (bytes == 0) return 0;
  const Machine& m = s_.between_replicas ? *s_.between_replicas : s_.machine;
  const int nodes = nodes_spanned(c_.replica, c_.ranks() / c_.replica, m.links.node);
  return collective_seconds(Collective::kAllReduce, bytes, c_.replica, nodes, m);
}

// Seconds that compute loses to collectives that run beside it for `hidden` seconds. async_tp sends parts of products
// as copies, which need no multiprocessors.
double Costs::contention(double hidden) const {
  const int all = s_.machine.multiprocessors;
  return all > 0 ? std::max(0.0, hidden) * std::min(0.5, kCollectiveMultiprocessors / all) : 0;
}

LayerCosts::LayerCosts(const Workload& s, const Costs& c)
    : embedding(c.embedding()), head(c.head()), tied(s.model.tied) {
  const std::vector<Block>& blocks = s.model.blocks;
  for (size_t i = 0; i < blocks.size(); ++i) {
    kinds.emplace_back(c.layer(blocks[i]), blocks[i].layers);
    if (blocks[i].parameters > blocks[largest_kind].parameters) largest_kind = i;
  }
}

int64_t LayerCosts::layers() const {
  int64_t n = 0;
  for (const auto& [layer, count] : kinds) n += count;
  return n;
}

const Layer& LayerCosts::at(int64_t layer) const {
  size_t i = 0;
  while (i + 1 < kinds.size() && layer >= kinds[i].second) layer -= kinds[i++].second;
  return kinds[i].first;
}

}  // namespace weft::planner
