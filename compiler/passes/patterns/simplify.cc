#include "compiler/passes/patterns/simplify.h"

#include <array>
#include <cmath>
#include <unordered_map>

#include "compiler/passes/new_node.h"
#include "compiler/passes/patterns/pattern.h"
#include "compiler/passes/pending_grad.h"
#include "framework/dispatch/dispatch.h"
#include "framework/ir/rewrite.h"
#include "ops/all_ops.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/record_parts.h"

namespace weft {
namespace {

/// One pass over the nodes in order. The operands of a node are simplified before the node, and the results of rows are
/// simplified in turn, so one pass is enough.
class Simplifier {
 public:
  Simplifier(const Graph& g, std::map<std::string, int>* applied) : g_(g), pending_(g), r_(g), applied_(applied) {}

  Ref<Graph> run() {
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& old = g_.node(id);
      Node n = old;
      for (Value& v : n.inputs) v = r_(v);
      bool fixed = pending_.keeps(id) || (!pending_.none() && n.no_grad);
      from_ = &old;
      Value v;
      if (!fixed && plain(n)) v = rewritten(n);
      if (v.valid()) {
        r_.map({id, 0}, v);
        changed_ = true;
        continue;
      }
      if (!fixed && n.op->is(kPointwise)) changed_ |= numbers(n);
      r_.map(id, append(std::move(n), fixed));
    }
    return changed_ ? r_.finish() : nullptr;
  }

 private:
  struct Known {
    Tensor uniform;      // 0-d on the CPU: the value of all elements
    Tensor all;          // all elements, if they are few and on the CPU
    bool fixed = false;  // must not match as an inner node of a pattern
  };

  static bool plain(const Node& n) {
    return n.outputs.size() == 1 && !n.op->is(kSideEffect) && !n.op->is(kStructural) && !n.op->is(kRandom) &&
           !n.op->is(kCollective);
  }
  const Graph& to() { return r_.graph(); }

  // ---- adding nodes ----

  int32_t append(Node n, bool fixed) {
    Known k;
    k.fixed = fixed;
    if (!fixed) learn(n, &k);
    known_.push_back(std::move(k));
    return r_.graph().add(std::move(n));
  }

  void learn(const Node& n, Known* k) {
    if (n.op == &constant_op) {
      k->uniform = evaluate(*n.op, n.attrs.without("device"), {}, {n.outputs[0].dtype, Device::cpu(), {}});
    } else if (n.op->is(kView) && !n.op->is(kStructural) && n.inputs.size() == 1 && n.outputs.size() == 1) {
      k->uniform = known_[n.inputs[0].node].uniform;
    } else if (n.op->leaf == internal::Leaf::kCaptured) {
      const Tensor& t = to().captured[n.attrs.i("index")];
      if (t.numel() <= kFoldElements && t.device().type == DeviceType::kCpu && !t.is_traced()) k->all = t;
    }
    if (n.op == &constant_op && n.outputs[0].device.type == DeviceType::kCpu) k->all = k->uniform;
  }

  Tensor evaluate(const OpDef& op, const Attrs& attrs, std::span<const Tensor> in, const TensorType& type) {
    Tensor out;
    internal::run_eager(op, internal::pointers(in), attrs, {&type, 1}, {&out, 1});
    return out;
  }

  /// The node's result in the new graph: from a row or folding, otherwise the node itself.
  Value simplified(Node n) {
    if (plain(n))
      if (Value v = rewritten(n); v.valid()) return v;
    if (n.op->is(kPointwise)) numbers(n);
    return {append(std::move(n), false), 0};
  }

  Value emit(const OpDef& op, std::span<const Value> in, Attrs attrs) {
    return simplified(new_node(to(), op, in, std::move(attrs), *from_));
  }

  /// A constant 0-d node, broadcast if `type` has dims.
  Value constant(const Tensor& scalar, const TensorType& type) {
    AttrValue value = is_floating(type.dtype) ? AttrValue(scalar.item<double>()) : AttrValue(scalar.item<int64_t>());
    Value v = emit(constant_op, {}, internal::with_device({{"value", value}, {"dtype", type.dtype}}, type.device));
    return type.shape.empty() ? v : emit(broadcast_op, {{v}}, {{"shape", type.shape}});
  }

  // ---- rewriting ----

  Value rewritten(const Node& n) {
    const TensorType want = n.outputs[0];
    for (const ParsedRule* row : rows_of(n.op->name)) {
      RuleBinding b(*this, n);
      if (!b.match(row->pattern, n) || !admits(row->rule->only, b)) continue;
      Value v = row->rule->build ? row->rule->build(b) : b.instantiate(row->result);
      if (!v.valid() || to().type(v) != want) continue;
      count(row->rule->pattern);
      return v;
    }
    return folded(n);
  }

  void count(const std::string& name) {
    if (applied_) ++(*applied_)[name];
  }

  Value folded(const Node& n) {
    if (n.op == &constant_op || n.outputs[0].device.type != DeviceType::kCpu || n.inputs.empty()) return {};
    if (itemsize(n.outputs[0].dtype) == 1 && is_floating(n.outputs[0].dtype)) return {};  // storage only
    const TensorType& type = n.outputs[0];
    std::vector<Tensor> in;
    if (n.op->is(kPointwise)) {
      for (Value v : n.inputs)
        if (const Tensor& u = known_[v.node].uniform; u.defined()) in.push_back(u);
      if (in.size() == n.inputs.size()) return evaluated(n, in, {type.dtype, type.device, {}});
      in.clear();
    }
    if (type.shape.numel() > kFoldElements) return {};
    bool all_uniform = true;
    for (Value v : n.inputs) {
      const Known& k = known_[v.node];
      if (!k.all.defined() && !(k.uniform.defined() && to().type(v).shape.numel() <= kFoldElements)) return {};
      all_uniform &= !k.all.defined() || k.all.dim() == 0;
      in.push_back(k.all.defined() ? k.all : spread(k.uniform, to().type(v)));
    }
    if (all_uniform && n.op->is(kView)) return {};  // broadcast(constant) is already minimal
    if (!n.op->kernel) return {};
    return evaluated(n, in, type);
  }

  // An op that fails is not folded: the step fails when it runs, with the op's place.
  Value evaluated(const Node& n, std::span<const Tensor> in, const TensorType& type) {
    Tensor t;
    try {
      t = evaluate(*n.op, n.attrs, in, type);
    } catch (const Error&) {
      return {};
    }
    return put(n, t);
  }

  Tensor spread(const Tensor& scalar, const TensorType& type) {
    if (type.shape.empty()) return scalar;
    return evaluate(broadcast_op, {{"shape", type.shape}}, {&scalar, 1}, {type.dtype, Device::cpu(), type.shape});
  }

  /// The value of a node, as a constant or a captured tensor.
  Value put(const Node& n, const Tensor& t) {
    const TensorType& type = n.outputs[0];
    Tensor first;
    if (t.numel() == 1 && t.dim() == 0) first = t;
    if (first.defined() && is_floating(t.dtype()) && std::isnan(t.item<double>()))
      return {};  // the bits of the NaN would be lost
    count("fold");
    if (first.defined()) return constant(first, type);
    Graph& g = r_.graph();
    Node c;
    c.op = &captured_op;
    c.attrs = {{"index", static_cast<int64_t>(g.captured.size())}};
    c.outputs = {type};
    c.line = n.line;
    c.scope = n.scope;
    c.backward = n.backward;
    g.captured.push_back(t);
    return {append(std::move(c), false), 0};
  }

  /// Replaces constants broadcast to full shape by a number (0-d) where a pointwise op reads them, as long as one
  /// operand keeps the shape.
  bool numbers(Node& n) {
    const Shape& shape = n.outputs[0].shape;
    if (shape.empty()) return false;
    bool done = false;
    for (Value& v : n.inputs) {
      if (!is_broadcast(to().node(v)) || !known_[v.node].uniform.defined()) continue;
      bool other = false;
      for (const Value& w : n.inputs) other |= &w != &v && !to().type(w).shape.empty();
      Value number = to().node(v).inputs[0];
      if (!other || !to().type(number).shape.empty()) continue;
      v = number;
      done = true;
      count("number");
    }
    return done;
  }

  // ---- matching ----

  struct ParsedRule {
    const RewriteRule* rule;
    Pattern pattern, result;
  };

  static std::span<const ParsedRule* const> rows_of(std::string_view op) {
    static const auto* all = [] {
      auto* map = new std::unordered_map<std::string_view, std::vector<const ParsedRule*>>;
      for (std::span<const RewriteRule> rules : {arith_rules(), view_rules(), cast_rules()})
        for (const RewriteRule& rule : rules) {
          auto* row = new ParsedRule{&rule, parse_pattern(rule.pattern, op_table()), {}};
          if (!rule.build) row->result = parse_pattern(rule.result, op_table());
          (*map)[row->pattern.op->name].push_back(row);
        }
      return map;
    }();
    auto it = all->find(op);
    if (it == all->end()) return {};
    return it->second;
  }

  class RuleBinding final : public Match {
   public:
    RuleBinding(Simplifier& s, const Node& root) : s_(s), root_(root) {}

    bool match(const Pattern& p, const Node& n) {
      if (n.op != p.op || n.inputs.size() != p.args.size()) return false;
      nodes_.push_back(&n == &root_ ? -1 : last_);
      if (p.args.size() != 2 || !n.op->is(kCommutative)) return operands(p, n, false);
      SavedBinding saved{letters_, nodes_.size()};
      if (operands(p, n, false)) return true;
      restore(saved);
      return operands(p, n, true);
    }

    Value operator[](char letter) const override { return letters_[letter - 'a']; }
    const Node& node(int i) const override { return nodes_[i] < 0 ? root_ : s_.to().node(nodes_[i]); }
    const TensorType& type(Value v) const override { return s_.to().type(v); }
    double number(char letter) const override { return s_.known_[letters_[letter - 'a'].node].uniform.item<double>(); }
    Value emit(const OpDef& op, std::initializer_list<Value> in, Attrs attrs) override {
      return s_.emit(op, {in.begin(), in.size()}, std::move(attrs));
    }
    Value constant(double value, const TensorType& type) override {
      Tensor scalar =
          s_.evaluate(constant_op, {{"value", value}, {"dtype", type.dtype}}, {}, {type.dtype, Device::cpu(), {}});
      return s_.constant(scalar, type);
    }

    Value instantiate(const Pattern& p) {
      if (p.letter) return letters_[p.letter - 'a'];
      if (!p.op) return constant(p.number, root_.outputs[0]);
      SmallVec<Value, 3> in;
      for (const Pattern& a : p.args) in.push_back(instantiate(a));
      return s_.emit(*p.op, in, {});
    }

   private:
    struct SavedBinding {
      std::array<Value, 26> letters;
      size_t nodes;
    };
    void restore(const SavedBinding& s) {
      letters_ = s.letters;
      nodes_.resize(s.nodes);
    }

    bool operands(const Pattern& p, const Node& n, bool swapped) {
      for (size_t i = 0; i < p.args.size(); ++i)
        if (!operand(p.args[i], n.inputs[swapped ? 1 - i : i])) return false;
      return true;
    }

    bool operand(const Pattern& p, Value v) {
      const Known& k = s_.known_[v.node];
      if (p.letter) {
        // Only on the CPU are constants folded. On other devices, rows that gather constants would not terminate.
        if (p.constant && (!k.uniform.defined() || type(v).device.type != DeviceType::kCpu)) return false;
        Value& bound = letters_[p.letter - 'a'];
        if (bound.valid()) return bound == v;
        bound = v;
        return true;
      }
      if (p.op) {
        if (k.fixed || s_.to().node(v).outputs.size() != 1) return false;
        last_ = v.node;
        return match(p, s_.to().node(v));
      }
      if (!k.uniform.defined()) return false;
      if (!is_floating(k.uniform.dtype())) return k.uniform.item<int64_t>() == static_cast<int64_t>(p.number);
      double x = k.uniform.item<double>();
      return x == p.number && std::signbit(x) == std::signbit(p.number);
    }

    Simplifier& s_;
    const Node& root_;
    std::array<Value, 26> letters_;
    std::vector<int32_t> nodes_;
    int32_t last_ = -1;
  };

  bool admits(Only only, const RuleBinding& b) {
    if (only == Only::kAny) return true;
    DType t = to().type(b['x']).dtype;
    return only == Only::kInts ? is_integral(t) : only == Only::kBools ? t == kBool : is_floating(t);
  }

  const Graph& g_;
  const PendingGrad pending_;
  Rewriter r_;
  std::map<std::string, int>* applied_;
  std::vector<Known> known_;  // index: node of the new graph
  const Node* from_ = nullptr;
  bool changed_ = false;
};

}  // namespace

Ref<Graph> simplify(const Graph& g, std::map<std::string, int>* applied) { return Simplifier(g, applied).run(); }

Ref<Graph> simplify(const Graph& g) { return simplify(g, nullptr); }

}  // namespace weft
