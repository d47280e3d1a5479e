#include "compiler/passes/patterns/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "compiler/passes/new_node.h"
#include "compiler/passes/pass.h"
#include "compiler/passes/pending_grad.h"
#include "framework/dispatch/capture.h"
#include "framework/ir/rewrite.h"
#include "ops/all_ops.h"
#include "ops/composite/loss/loss.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/linear_cross_entropy.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/reduce.h"
#include "ops/kernels/products/linear_cross_entropy.h"

namespace weft {
namespace {

// Options of the captured patterns. No program uses these numbers, so constants derived from them can be recognised.
constexpr int64_t kIgnored = -739391;
constexpr double kSmoothing = 0.31640625, kZLoss = 0.15234375;

double number(const Node& constant) { return internal::number(constant.attrs, "value"); }

/// cross_entropy as it is captured, to match against a graph. The pattern is the composite itself.
class CrossEntropyPattern {
 public:
  CrossEntropyPattern(const TensorType& logits, const TensorType& targets, bool smoothing, bool z_loss)
      : graph_(capture_graph(
            [&](std::span<const Tensor> in) {
              CrossEntropyOptions o{.ignore_index = kIgnored, .reduction = "none", .dim = -1};
              if (smoothing) o.label_smoothing = kSmoothing;
              if (z_loss) o.z_loss = kZLoss;
              return std::vector<Tensor>{cross_entropy(in[0], in[1], o)};
            },
            std::vector<TensorType>{logits, targets})),
        from_logits_(graph_->size()) {
    for (int32_t id = 0; id < graph_->size(); ++id) {
      from_logits_[id] = id == graph_->inputs[0].node;
      for (Value v : graph_->node(id).inputs) from_logits_[id] = from_logits_[id] || from_logits_[v.node];
    }
  }

  struct LossMatch {
    Value logits, targets;
    int64_t ignore_index = 0;
    double smoothing = 0, z_loss = 0;
    std::vector<int32_t> inside;  // nodes from the logits to the loss, including the loss
  };
  std::optional<LossMatch> match(const Graph& g, Value loss) const {
    PatternSearch s{*this, g, g.node(loss).no_grad, {}, {}, {}};
    if (!s.same(graph_->outputs[0], loss)) return {};
    LossMatch& m = s.found;
    if (s.numbers.contains(kSmoothing) && std::fabs(1 - m.smoothing - s.numbers[1 - kSmoothing]) > 1e-6) return {};
    for (auto& [p, v] : s.seen)
      if (from_logits_[p.node] && p.node != graph_->inputs[0].node) m.inside.push_back(v.node);
    std::sort(m.inside.begin(), m.inside.end());
    return m;
  }

 private:
  struct PatternSearch {
    const CrossEntropyPattern& pattern;
    const Graph& g;
    const bool no_grad;  // no gradient flows through the loss
    LossMatch found;
    std::map<Value, Value> seen;       // value of the pattern -> value of the graph
    std::map<double, double> numbers;  // special number of the pattern -> number of the graph

    bool same(Value p, Value v) {
      auto [it, fresh] = seen.emplace(p, v);
      if (!fresh) return it->second == v || equal_constants(p, v);
      const Graph& pg = *pattern.graph_;
      if (!(pg.type(p) == g.type(v))) return false;
      if (p == pg.inputs[0]) return found.logits = v, true;
      if (p == pg.inputs[1]) return found.targets = v, true;
      const Node &a = pg.node(p), &b = g.node(v);
      // A gradient that stops in one must stop in the other.
      if (a.no_grad != b.no_grad && !(b.no_grad && no_grad)) return false;
      if (a.op != b.op || a.inputs.size() != b.inputs.size() || p.index != v.index) return false;
      if (a.op == &constant_op) return constant(number(a), number(b));
      if (!(a.attrs == b.attrs)) return false;
      for (size_t i = 0; i < a.inputs.size(); ++i)
        if (!same(a.inputs[i], b.inputs[i])) return false;
      return true;
    }
    bool equal_constants(Value p, Value v) {
      const Node& b = g.node(v);
      return pattern.graph_->node(p).op == &constant_op && b.op == &constant_op &&
             constant(number(pattern.graph_->node(p)), number(b));
    }
    bool constant(double want, double got) {
      if (want == kIgnored) found.ignore_index = static_cast<int64_t>(got);
      if (want == kSmoothing) found.smoothing = got;
      if (want == kZLoss) found.z_loss = got;
      if (want != kIgnored && want != kSmoothing && want != 1 - kSmoothing && want != kZLoss) return want == got;
      auto [it, fresh] = numbers.emplace(want, got);
      return fresh || it->second == got;
    }
  };

  Ref<Graph> graph_;
  std::vector<bool> from_logits_;
};

/// The operands of the logits: a product, an optional bias, casts to f32 and reshapes of the same rows.
struct LogitsProduct {
  int32_t dot = -1;
  Value bias;
  std::vector<int32_t> chain;  // nodes from the logits down to the product
};

class LossDiscovery {
 public:
  LossDiscovery(const Graph& g, PassContext& context)
      : g_(g), context_(context), pending_(g), users_(users(g)), last_use_(last_uses(g)) {}

  Ref<Graph> run() {
    std::map<int32_t, FoundLoss> found;
    for (int32_t id = 0; id < g_.size(); ++id)
      if (std::optional<FoundLoss> f = at(id)) found.emplace(id, *f);
    if (found.empty()) return nullptr;
    return replace_results(g_, found, [&](Rewriter& r, const Node& n, const FoundLoss& f) { return emit(r, n, f); });
  }

 private:
  struct FoundLoss {
    CrossEntropyPattern::LossMatch match;
    LogitsProduct linear;
  };

  /// A loss of rows whose large logits nothing else reads.
  std::optional<FoundLoss> at(int32_t id) {
    const Node& n = g_.node(id);
    // The composite ends in where(counts, loss, 0), counts = ne(targets, ignored).
    if (n.op != &where_ || !is_floating(n.outputs[0].dtype) || g_.node(n.inputs[0]).op != &ne_) return {};
    const Value targets = g_.node(n.inputs[0]).inputs[0];
    if (g_.type(targets).shape != n.outputs[0].shape || !is_integral(g_.type(targets).dtype)) return {};
    for (Value logits : large_logits(n))
      for (int variant = 0; variant < 4; ++variant) {
        const CrossEntropyPattern p(g_.type(logits), g_.type(targets), variant & 1, variant & 2);
        const std::optional<CrossEntropyPattern::LossMatch> m = p.match(g_, {id, 0});
        if (!m || m->logits != logits) continue;
        LogitsProduct linear;
        const std::string why = refused(*m, linear);
        if (why.empty() || large(g_.node(logits)))
          context_.note(str_cat("logits ", g_.type(logits), at_line(n),
                                why.empty() ? " are never whole in memory" : " stay: ", why));
        if (!why.empty()) return {};
        return FoundLoss{*m, linear};
      }
    return {};
  }

  bool large(const Node& n) const { return n.outputs[0].shape.numel() * 4 > kLargeLogitsBytes; }
  int64_t least_bytes() const { return context_.facts.low_memory ? 0 : kLargeLogitsBytes; }

  /// Values with one dim more than the loss and many bytes, whose maximum is taken a few nodes above the loss.
  std::vector<Value> large_logits(const Node& loss) const {
    const Shape& rows = loss.outputs[0].shape;
    std::vector<Value> found, open(loss.inputs.begin(), loss.inputs.end());
    std::vector<int32_t> seen;
    for (size_t i = 0; i < open.size() && seen.size() < 64; ++i) {  // nearest first
      const Value v = open[i];
      if (std::find(seen.begin(), seen.end(), v.node) != seen.end()) continue;
      seen.push_back(v.node);
      const Node& n = g_.node(v);
      if (!n.op->is(kContraction)) open.insert(open.end(), n.inputs.begin(), n.inputs.end());
      if (n.op != &reduce_max_op) continue;
      const TensorType& t = g_.type(n.inputs[0]);
      bool wide = t.shape.size() == rows.size() + 1 && is_floating(t.dtype) && t.shape.numel() * 4 > least_bytes();
      for (int d = 0; wide && d < rows.size(); ++d) wide = t.shape[d] == rows[d];
      if (wide) found.push_back(n.inputs[0]);
    }
    return found;
  }

  /// Why the logits must stay. Empty if they need not; then `linear` describes their operands.
  std::string refused(const CrossEntropyPattern::LossMatch& m, LogitsProduct& linear) const {
    const Shape& shape = g_.type(m.logits).shape;
    const int64_t classes = shape.back(), rows = shape.numel() / classes;
    if (g_.type(m.logits).device.type != DeviceType::kCpu) return "they are not on the CPU";
    const int64_t least = 2 * kernels::linear_cross_entropy_rows(classes);
    if (rows < least) return str_cat("there are only ", rows, " rows, less than two chunks of ", least / 2);
    if (classes <= 4) return str_cat("there are only ", classes, " classes");
    Value v = m.logits;
    for (;; v = g_.node(v).inputs[0]) {
      const Node& n = g_.node(v);
      linear.chain.push_back(v.node);
      if (n.op == &dot_op) break;
      const bool cast = n.op == &cast_op && is_16bit(g_.type(n.inputs[0]).dtype) && n.outputs[0].dtype == kFloat32;
      const bool reshape =
          n.op == &reshape_op && g_.type(n.inputs[0]).shape.size() > 0 && g_.type(n.inputs[0]).shape.back() == classes;
      const bool bias = n.op == &add_ && !linear.bias.valid() && bias_of(n).valid();
      if (bias) linear.bias = bias_of(n);
      if (!cast && !reshape && !bias) return str_cat("they are the result of ", n.op->name, ", not of a linear layer");
    }
    linear.dot = v.node;
    const Node& dot = g_.node(v);
    const TensorType &x = g_.type(dot.inputs[0]), &w = g_.type(dot.inputs[1]);
    if (dot.attrs.ints("a_batch").size() > 0 || w.shape.size() != 2 || dot.attrs.ints("a_contract").size() != 1 ||
        dot.attrs.ints("a_contract")[0] != x.shape.size() - 1 || !is_floating(x.dtype) ||
        dot.outputs[0].shape.back() != classes)
      return "their product is not x[..., D] times a matrix";
    if (x.dtype == kFloat64) return "sums of f64 run over all rows at once";
    if (context_.facts.eager_bits && x.dtype != kFloat32) return "numerics=eager rounds them to 16 bits";
    if (context_.facts.eager_bits && linear.bias.valid())
      return "numerics=eager sums the bias's gradient over all rows at once";
    // The gradients of the operands are summed in the order of their readers.
    for (int32_t id = linear.dot + 1; id < m.inside.back(); ++id)
      if (!contains(m.inside, id) && !contains(linear.chain, id))
        for (Value in : g_.node(id).inputs)
          for (Value operand : dot.inputs)
            if (in == operand && !g_.node(id).no_grad && is_floating(g_.node(id).outputs[0].dtype))
              return str_cat(g_.node(id).op->name, at_line(g_.node(id)), " reads their factors in between");
    for (const std::vector<int32_t>* part : {static_cast<const std::vector<int32_t>*>(&linear.chain), &m.inside})
      for (int32_t id : *part) {
        if (id == m.inside.back()) continue;
        if (part == &linear.chain && g_.node(id).no_grad != g_.node(m.inside.back()).no_grad)
          return "no gradient flows through them";
        if (last_use_[id] == g_.size() || pending_.keeps(id))
          return "they, or values computed from them, are a result too";
        for (int32_t u : users_[id])
          if (!contains(m.inside, u) && !contains(linear.chain, u))
            return str_cat(g_.node(u).op->name, at_line(g_.node(u)), " reads them too");
      }
    return {};
  }

  /// The value b[V] in add(.., broadcast(b)), if any.
  Value bias_of(const Node& add) const {
    const Node& b = g_.node(add.inputs[1]);
    if (!is_broadcast(b)) return {};
    const Shape& s = g_.type(b.inputs[0]).shape;
    return s.size() == 1 && s[0] == add.outputs[0].shape.back() ? b.inputs[0] : Value();
  }

  static bool contains(const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }

  Value emit(Rewriter& r, const Node& loss, const FoundLoss& f) const {
    auto add = [&](const OpDef& op, const std::vector<Value>& in, Attrs attrs) {
      return add_node(r.graph(), op, in, std::move(attrs), loss);
    };
    auto shaped = [&](Value v, const Shape& shape) { return add_reshape(r.graph(), v, shape, loss); };
    const Node& dot = g_.node(f.linear.dot);
    const Shape& rows = loss.outputs[0].shape;
    const int64_t n = rows.numel();
    const Value x = shaped(r(dot.inputs[0]), Shape{n, g_.type(dot.inputs[0]).shape.back()});
    Value w = r(dot.inputs[1]);
    if (dot.attrs.ints("b_contract")[0] == 0) w = add(permute_op, {w}, {{"dims", Shape{1, 0}}});
    const Value targets = shaped(r(f.match.targets), Shape{n});
    const Attrs attrs{
        {"ignore_index", f.match.ignore_index}, {"label_smoothing", f.match.smoothing}, {"z_loss", f.match.z_loss}};
    const Value y = f.linear.bias.valid() ? add(linear_cross_entropy_op, {x, w, targets, r(f.linear.bias)}, attrs)
                                          : add(linear_cross_entropy_op, {x, w, targets}, attrs);
    return shaped(y, rows);
  }

  const OpDef& op(const char* name) const { return *op_table().find(name); }

  const Graph& g_;
  PassContext& context_;
  const PendingGrad pending_;
  const std::vector<std::vector<int32_t>> users_;
  std::vector<int32_t> last_use_;
  const OpDef &where_ = op("where"), &ne_ = op("ne"), &add_ = op("add");
};

}  // namespace

Ref<Graph> linear_cross_entropy(const Graph& g, PassContext& context) {
  if (context.facts.exact_sums) return nullptr;  // one gradient for all sizes and meshes
  bool large = false;                            // most graphs have no large logits
  for (int32_t id = 0; id < g.size() && !large; ++id)
    large = g.node(id).op == &dot_op &&
            (context.facts.low_memory || g.node(id).outputs[0].shape.numel() * 4 > kLargeLogitsBytes);
  return large ? LossDiscovery(g, context).run() : nullptr;
}

Ref<Graph> merge_linear_cross_entropy(const Graph& g) {
  // For each op that computes only the loss: the op that computes the same loss and its gradients.
  std::map<int32_t, int32_t> same;
  for (int32_t a = 0; a < g.size(); ++a) {
    if (g.node(a).op != &linear_cross_entropy_op) continue;
    for (int32_t b = a + 1; b < g.size(); ++b) {
      const Node &x = g.node(a), &y = g.node(b);
      if (y.op != &linear_cross_entropy_grad_op || !(x.attrs == y.attrs) || y.inputs.size() != x.inputs.size() + 1)
        continue;
      bool equal = true;
      for (size_t i = 0; i < x.inputs.size(); ++i) equal = equal && x.inputs[i] == y.inputs[i < 3 ? i : i + 1];
      if (equal) {
        same.emplace(a, b);
        break;
      }
    }
  }
  Ref<Graph> now;
  for (auto [loss, both] : same) {
    // Operands of the gradients that are computed later must move up. They must not depend on the loss.
    std::vector<int32_t> moved;
    std::vector<bool> needed(g.size());
    bool possible = true;
    needed[both] = true;
    for (int32_t id = both; id > loss; --id) {
      if (!needed[id]) continue;
      if (id != both) moved.push_back(id);
      possible = possible && !g.node(id).op->is(kSideEffect);
      for (Value v : g.node(id).inputs) needed[v.node] = true;
    }
    if (!possible || needed[loss]) continue;
    std::reverse(moved.begin(), moved.end());
    Rewriter r(g);
    for (int32_t id = 0; id < g.size(); ++id) {
      if (id == both || (id > loss && std::binary_search(moved.begin(), moved.end(), id))) continue;
      if (id != loss) {
        r.copy(id);
        continue;
      }
      for (int32_t m : moved) r.copy(m);
      r.copy(both);
      r.map({loss, 0}, r({both, 0}));
    }
    now = r.finish();
    break;  // node numbers have changed: merge the next pair in a new graph
  }
  if (!now) return nullptr;
  Ref<Graph> more = merge_linear_cross_entropy(*now);
  return more ? more : now;
}

}  // namespace weft
