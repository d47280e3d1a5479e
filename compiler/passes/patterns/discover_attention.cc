#include "compiler/passes/patterns/discover_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "compiler/passes/new_node.h"
#include "compiler/passes/pass.h"
#include "compiler/passes/pending_grad.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/ir/rewrite.h"
#include "ops/all_ops.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/softmax.h"

namespace weft {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// One attention: the nodes that it replaces, and its parts.
struct FoundAttention {
  int32_t softmax = -1, scores = -1, out = -1;  // scores and out: the two products
  Value top;                                    // the operand of softmax, below the mask
  Value value;                                  // the scaled scores
  Value mask;                                   // invalid if there is none
  bool mask_hides = false;                      // true where a score is hidden
  double scale = 1;
  int32_t random = -1;  // dropout: its random bits
  double dropout = 0;
  std::set<int32_t> inside;  // all nodes from the first product to the second, both included
};

/// A mod as a graph, and the values of the outer graph that are its tables.
struct Mod {
  Ref<Graph> graph;
  std::vector<Value> tables;
  std::vector<Shape> shapes;  // shapes of the tables, without dims of 1
};

class AttentionDiscovery {
 public:
  AttentionDiscovery(const Graph& g, PassContext& context)
      : g_(g), context_(context), pending_(g), users_(users(g)), last_use_(last_uses(g)) {}

  Ref<Graph> run() {
    std::map<int32_t, FoundAttention> by_out;
    for (int32_t id = 0; id < g_.size(); ++id) {
      if (g_.node(id).op != &softmax_op) continue;
      FoundAttention f;
      f.softmax = id;
      const std::string why = look(f);
      if (why == kNotAttention) continue;
      context_.note(
          str_cat("softmax", at_line(g_.node(id)), why.empty() ? " is attention's: one kernel" : " stays: ", why));
      if (why.empty()) by_out.emplace(f.out, std::move(f));
    }
    if (by_out.empty()) return nullptr;
    return replace_results(g_, by_out, [&](Rewriter& r, const Node&, const FoundAttention& f) { return emit(r, f); });
  }

 private:
  static constexpr const char* kNotAttention = "?";

  const OpDef& op(const char* name) const { return *op_table().find(name); }
  bool is(Value v, const char* name) const { return g_.node(v).op == &op(name); }

  /// The number that all elements of v have, if any, before it is rounded to the dtype of v.
  std::optional<double> unrounded(Value v) const {
    const Node* const n = constant_behind(g_, v, true);
    return n ? std::optional(internal::number(n->attrs, "value")) : std::nullopt;
  }
  /// The number that all elements of v have, if any.
  std::optional<double> number(Value v) const {
    std::optional<double> x = unrounded(v);
    const DType t = g_.type(v).dtype;
    if (x && t == kFloat16) x = static_cast<float>(float16(static_cast<float>(*x)));
    if (x && t == kBFloat16) x = static_cast<float>(bfloat16(static_cast<float>(*x)));
    return x;
  }

  /// Empty if the node becomes an attention; then f describes it. Otherwise the reason why it stays.
  std::string look(FoundAttention& f) {
    const Node& softmax = g_.node(f.softmax);
    const Shape& shape = softmax.outputs[0].shape;
    const int rank = shape.size();
    if (rank < 2 || softmax.attrs.i("dim") != rank - 1) return kNotAttention;
    if (std::string why = down(f, shape); !why.empty()) return why;
    if (std::string why = up(f, shape); !why.empty()) return why;
    if (softmax.outputs[0].dtype != kFloat32) return str_cat("scores are ", softmax.outputs[0].dtype, ", not f32");
    if (rank > 4) return str_cat("scores ", shape, " have more than four dims");
    const TensorType &q = g_.type(g_.node(f.scores).inputs[0]), &v = g_.type(g_.node(f.out).inputs[1]);
    if (q.dtype != v.dtype || g_.node(f.out).outputs[0].dtype != v.dtype)
      return str_cat("q is ", q.dtype, ", v ", v.dtype, " and the result ", g_.node(f.out).outputs[0].dtype);
    for (int32_t id : f.inside) {
      if (id == f.out) continue;
      if (last_use_[static_cast<size_t>(id)] == g_.size() || pending_.keeps(id))
        return str_cat(g_.node(id).op->name, at_line(g_.node(id)), " is a result too");
      if (g_.node(id).no_grad != softmax.no_grad) return "gradients stop inside";
      for (int32_t u : users_[static_cast<size_t>(id)])
        if (!f.inside.contains(u))
          return str_cat(g_.node(id).op->name, at_line(g_.node(id)), " is read by ", g_.node(u).op->name,
                         at_line(g_.node(u)), " too");
    }
    return "";
  }

  int32_t only_user(int32_t id) const {
    const auto& u = users_[static_cast<size_t>(id)];
    return u.size() == 1 ? u[0] : -1;
  }

  /// Walks from the probabilities to the product with v.
  std::string down(FoundAttention& f, const Shape& shape) {
    int32_t at = f.softmax;
    f.inside.insert(at);
    for (;;) {
      const int32_t next = only_user(at);
      if (next < 0) return kNotAttention;
      const Node& n = g_.node(next);
      if (n.op == &dot_op) {
        if (n.inputs[0].node != at || n.inputs[1].node == at) return kNotAttention;
        f.out = next;
        break;
      }
      if (n.op == &cast_op) {
        f.inside.insert(next);
        at = next;
        continue;
      }
      if (n.op == &op("mul") && f.random < 0) {
        const int32_t where = only_user(next);
        if (where < 0 || !dropout(f, next, where)) return kNotAttention;
        f.inside.insert(next);
        f.inside.insert(where);
        at = where;
        continue;
      }
      return kNotAttention;
    }
    const Node& dot = g_.node(f.out);
    const int rank = shape.size();
    const Shape &v = g_.type(dot.inputs[1]).shape, &batch = dot.attrs.ints("a_batch");
    bool ok = batch.size() == rank - 2 && v.size() == rank && dot.attrs.ints("a_contract") == Shape{rank - 1} &&
              dot.attrs.ints("b_contract").size() == 1;
    for (int d = 0; ok && d < rank - 2; ++d) ok = batch[d] == d;
    f.inside.insert(f.out);
    return ok ? "" : kNotAttention;
  }

  /// mul(p, 1 / (1 - rate)) and where(bits >= rate, that, 0), as dropout is captured.
  bool dropout(FoundAttention& f, int32_t mul, int32_t where) const {
    const Node &m = g_.node(mul), &w = g_.node(where);
    if (w.op != &op("where") || w.inputs[1].node != mul || number(w.inputs[2]) != 0.0) return false;
    const Node& ge = g_.node(w.inputs[0]);
    if (ge.op != &op("ge")) return false;
    const std::optional<double> rate = number(ge.inputs[1]), gain = unrounded(m.inputs[1]);
    if (!rate || !gain || !(*rate > 0 && *rate < 1) || std::fabs(*gain * (1 - *rate) - 1) > 1e-6) return false;
    // The upper 24 of the bits, as a number in [0, 1).
    Value v = ge.inputs[0];
    if (!is(v, "mul") || number(g_.node(v).inputs[1]) != 0x1p-24) return false;
    v = g_.node(v).inputs[0];
    if (g_.node(v).op != &cast_op) return false;
    v = g_.node(v).inputs[0];
    if (!is(v, "shift_right_logical") || number(g_.node(v).inputs[1]) != 8.0) return false;
    v = g_.node(v).inputs[0];
    if (g_.node(v).op != &random_bits_op || g_.type(v).shape != g_.node(f.softmax).outputs[0].shape) return false;
    f.random = v.node;
    f.dropout = *rate;
    return true;
  }

  /// Walks from the operand of softmax to the product of q and k.
  std::string up(FoundAttention& f, const Shape& shape) {
    Value x = g_.node(f.softmax).inputs[0];
    std::map<int32_t, bool> seen;
    std::string why;
    if (!depends(f, x.node, shape, seen, why)) return why.empty() ? kNotAttention : why;
    const Node& dot = g_.node(f.scores);
    const int rank = shape.size();
    const Shape &a = dot.attrs.ints("a_batch"), &b = dot.attrs.ints("b_batch");
    if (a.size() != rank - 2 || b.size() != rank - 2 || dot.attrs.ints("a_contract").size() != 1 ||
        g_.type(dot.inputs[0]).shape.size() != rank || g_.type(dot.inputs[1]).shape.size() != rank)
      return kNotAttention;
    for (const auto& [id, yes] : seen)
      if (yes) f.inside.insert(id);
    // softmax widens 16-bit scores; a mod computes in f32 anyway.
    while (g_.node(x).op == &cast_op && is_16bit(g_.type(g_.node(x).inputs[0]).dtype)) x = g_.node(x).inputs[0];
    f.top = x;
    // where(condition, scores, -inf) directly below softmax, and a scalar factor directly above the product.
    if (is(x, "where")) {
      const Node& w = g_.node(x);
      for (int hidden : {1, 2}) {
        const Value other = w.inputs[3 - hidden];
        if (number(w.inputs[hidden]) != -kInf || !inside(f, other) || inside(f, w.inputs[0])) continue;
        f.mask = w.inputs[0];
        f.mask_hides = hidden == 1;
        f.top = other;
        break;
      }
    }
    f.value = {f.scores, 0};
    const int32_t user = only_user(f.scores);
    if (user >= 0 && (is({user, 0}, "mul") || is({user, 0}, "div"))) {
      const Node& n = g_.node(user);
      const bool first = n.inputs[0].node == f.scores;
      const std::optional<double> c = number(n.inputs[first ? 1 : 0]);
      if (c && *c != 0 && (first || n.op == &op("mul"))) {
        f.scale = n.op == &op("mul") ? *c : 1 / *c;
        f.value = {user, 0};
      }
    }
    return "";
  }
  bool inside(const FoundAttention& f, Value v) const { return f.inside.contains(v.node); }

  /// Whether a value is computed elementwise from the product.
  bool depends(FoundAttention& f, int32_t id, const Shape& shape, std::map<int32_t, bool>& seen,
               std::string& why) const {
    if (auto at = seen.find(id); at != seen.end()) return at->second;
    const Node& n = g_.node(id);
    bool yes = false;
    if (n.outputs.size() == 1 && n.outputs[0].shape == shape) {
      if (n.op == &dot_op) {
        yes = f.scores < 0 || f.scores == id;
        if (!yes) why = "the scores depend on two products";
        if (yes) f.scores = id;
      } else if (n.op->is(kPointwise)) {
        for (Value v : n.inputs) yes = depends(f, v.node, shape, seen, why) || yes;
      }
    }
    return seen[id] = yes;
  }

  // ---- mods ----

  /// Writes the computation of the graph over [.., q, kv] as a function of one point. Chains of 16-bit floats stay f32
  /// inside, as in fused kernels: numbers and tables have the values that their dtypes round to, and results of ops are
  /// not rounded.
  class Puller {
   public:
    Puller(const AttentionDiscovery& d, const FoundAttention& f, bool score) : d_(d), f_(f), capture_(Capture::kBody) {
      const TensorType index{kInt64, Device::cpu(), {}};
      if (score) value_ = capture_.add_input({kFloat32, Device::cpu(), {}});
      std::vector<Tensor> at;
      for (int i = 0; i < 4; ++i) at.push_back(capture_.add_input(index));
      const int rank = d.g_.type({f.softmax, 0}).shape.size();
      at_.assign(at.end() - rank, at.end());
    }
    Mod finish(Value v, bool negate) {
      Tensor t = pull(v, at_);
      if (negate) t = logical_not(t);
      if (t.dtype() != kBool) t = cast(t, kFloat32);
      mod_.graph = capture_.finish(std::vector<Tensor>{t});
      return std::move(mod_);
    }

   private:
    using DimPositions = std::vector<Tensor>;  // index: dim; undefined where the extent is 1

    /// The dtype in which a mod has values of dtype t.
    static DType computed(DType t) { return is_16bit(t) ? kFloat32 : t; }
    static Tensor wide(const Tensor& t) { return cast(t, computed(t.dtype())); }

    Tensor pull(Value v, const DimPositions& at) {
      std::vector<const TensorImpl*> key;
      for (const Tensor& t : at) key.push_back(t.defined() ? t.impl() : nullptr);
      auto [known, fresh] = done_.try_emplace({v, key});
      if (fresh) known->second = make(v, at);
      return known->second;
    }

    Tensor make(Value v, const DimPositions& at) {
      if (v == f_.value) return cast(value_, computed(d_.g_.type(v).dtype));
      const Graph& g = d_.g_;
      const Node& n = g.node(v);
      const Shape& shape = g.type(v).shape;
      if (n.op == &constant_op) return wide(dispatch(constant_op, {}, n.attrs.without("device"), n.line));
      if (n.op == &iota_op) return iota(n, at);
      if (n.op->is(kPointwise)) {
        SmallVec<Tensor, 3> in;
        SmallVec<const Tensor*, 3> operands;
        for (Value i : n.inputs) in.push_back(pull(i, g.type(i).shape.empty() ? DimPositions{} : at));
        if (n.op == &cast_op) return cast(in[0], computed(n.outputs[0].dtype));
        for (const Tensor& t : in) operands.push_back(&t);
        return dispatch(*n.op, TensorPtrs(operands), n.attrs, n.line);
      }
      if (is_spread(n)) {
        const Shape& from = g.type(n.inputs[0]).shape;
        DimPositions in(static_cast<size_t>(from.size()));
        bool ok = true;
        if (is_broadcast(n)) {
          const int more = shape.size() - from.size();
          for (int d = 0; d < from.size(); ++d)
            if (from[d] != 1) in[static_cast<size_t>(d)] = at[static_cast<size_t>(d + more)];
        } else if (n.op->placing == Placing::kPermute) {
          const Shape& dims = n.attrs.ints("dims");
          for (int d = 0; d < dims.size(); ++d) in[static_cast<size_t>(dims[d])] = at[static_cast<size_t>(d)];
        } else {
          // Dims of 1 may appear or disappear. The others keep their order.
          int to = 0;
          for (int d = 0; d < from.size() && ok; ++d) {
            if (from[d] == 1) continue;
            while (to < shape.size() && shape[to] == 1) ++to;
            ok = to < shape.size() && shape[to] == from[d];
            if (ok) in[static_cast<size_t>(d)] = at[static_cast<size_t>(to++)];
          }
        }
        if (ok) return pull(n.inputs[0], in);
      }
      return table(v, at);
    }

    Tensor iota(const Node& n, const DimPositions& at) {
      const AttrValue &start = *n.attrs.find("start"), &step = *n.attrs.find("step");
      const Tensor i = at[0].defined() ? at[0] : full({}, int64_t{0}, {.dtype = kInt64});
      const DType t = n.outputs[0].dtype;
      if (const int64_t* whole = std::get_if<int64_t>(&start))
        return wide(cast(i * std::get<int64_t>(step) + *whole, t));
      return wide(cast(cast(i, kFloat64) * std::get<double>(step) + std::get<double>(start), t));
    }

    Tensor table(Value v, const DimPositions& at) {
      const TensorType& type = d_.g_.type(v);
      Shape shape;
      for (int64_t n : type.shape)
        if (n != 1) shape.push_back(n);
      const auto known = std::find(mod_.tables.begin(), mod_.tables.end(), v);
      const size_t which = static_cast<size_t>(known - mod_.tables.begin());
      if (known == mod_.tables.end()) {
        mod_.tables.push_back(v);
        mod_.shapes.push_back(shape);
        inputs_.push_back(capture_.add_input({type.dtype, type.device, shape}));
      }
      Tensor t = inputs_[which];
      for (int d = 0; d < type.shape.size(); ++d)
        if (type.shape[d] != 1) t = t[at[static_cast<size_t>(d)]];
      return wide(t);
    }

    const AttentionDiscovery& d_;
    const FoundAttention& f_;
    Capture capture_;
    Tensor value_;
    DimPositions at_;
    Mod mod_;
    std::vector<Tensor> inputs_;
    std::map<std::pair<Value, std::vector<const TensorImpl*>>, Tensor> done_;
  };

  // ---- the node ----

  Value emit(Rewriter& r, const FoundAttention& f) const {
    const Node &softmax = g_.node(f.softmax), &scores = g_.node(f.scores), &out = g_.node(f.out);
    auto add = [&](const OpDef& op, const std::vector<Value>& in, Attrs attrs) {
      return add_node(r.graph(), op, in, std::move(attrs), softmax);
    };
    auto shaped = [&](Value v, const Shape& shape) { return add_reshape(r.graph(), v, shape, softmax); };
    // Reshapes [batch..., rows, last] to [B, H, rows, last].
    auto operand = [&](Value old, const Shape& batch, int64_t last) {
      Value v = r(old);
      const Shape shape = r.graph().type(v).shape;
      Shape dims = batch, to;
      int64_t rows = 0;
      while (std::find(batch.begin(), batch.end(), rows) != batch.end() || rows == last) ++rows;
      dims.push_back(rows);
      dims.push_back(last);
      bool same = true;
      for (int d = 0; d < dims.size(); ++d) same = same && dims[d] == d;
      if (!same) v = add(permute_op, {v}, {{"dims", dims}});
      for (int d = dims.size(); d < 4; ++d) to.push_back(1);
      for (int64_t d : dims) to.push_back(shape[static_cast<int>(d)]);
      return shaped(v, to);
    };
    auto other = [](const Shape& batch, int64_t contract) {
      int64_t d = 0;
      while (std::find(batch.begin(), batch.end(), d) != batch.end() || d == contract) ++d;
      return d;
    };
    const Shape& vb = out.attrs.ints("b_batch");
    std::vector<Value> in{operand(scores.inputs[0], scores.attrs.ints("a_batch"), scores.attrs.ints("a_contract")[0]),
                          operand(scores.inputs[1], scores.attrs.ints("b_batch"), scores.attrs.ints("b_contract")[0]),
                          operand(out.inputs[1], vb, other(vb, out.attrs.ints("b_contract")[0]))};
    std::vector<Attrs::AttrEntry> attrs{
        {"scale", f.scale}, {"score_tables", int64_t{0}}, {"mask_tables", int64_t{0}}, {"block_q", int64_t{0}}};
    auto with = [&](const char* name, size_t count, const Mod& mod) {
      attrs.push_back({name, mod.graph});
      attrs[count].second = static_cast<int64_t>(mod.tables.size());
      for (size_t i = 0; i < mod.tables.size(); ++i) in.push_back(shaped(r(mod.tables[i]), mod.shapes[i]));
    };
    if (f.top != f.value) with("score", 1, Puller(*this, f, true).finish(f.top, false));
    if (f.mask.valid()) with("mask", 2, Puller(*this, f, false).finish(f.mask, f.mask_hides));
    if (f.random >= 0) {
      const Node& bits = g_.node(f.random);
      for (Value v : bits.inputs) in.push_back(r(v));
      attrs.push_back({"dropout", f.dropout});
      attrs.push_back({"op_id", bits.attrs.i("op_id")});
    }
    const Value y = add(attention_op, in, Attrs(attrs));
    Value result = y;
    if (f.mask.valid() || f.top != f.value) {
      // A row without keys gives NaN, as softmax does.
      const TensorType& t = r.graph().type(y);
      const Value log_sum = shaped({y.node, 1}, {t.shape[0], t.shape[1], t.shape[2], 1});
      auto constant = [&](double c, DType type) {
        return add(constant_op, {}, internal::with_device({{"value", c}, {"dtype", type}}, t.device));
      };
      const Value empty = add(op("eq"), {log_sum, constant(-kInf, kFloat32)}, {});
      result =
          add(op("where"), {add(broadcast_op, {empty}, {{"shape", t.shape}}), constant(std::nan(""), t.dtype), y}, {});
    }
    return shaped(result, out.outputs[0].shape);
  }

  const Graph& g_;
  PassContext& context_;
  const PendingGrad pending_;
  const std::vector<std::vector<int32_t>> users_;
  std::vector<int32_t> last_use_;
};

}  // namespace

Ref<Graph> discover_attention(const Graph& g, PassContext& context) {
  if (context.facts.eager_bits) return nullptr;  // sums in another order
  bool any = false;
  for (int32_t id = 0; id < g.size() && !any; ++id) any = g.node(id).op == &softmax_op;
  return any ? AttentionDiscovery(g, context).run() : nullptr;
}

}  // namespace weft
