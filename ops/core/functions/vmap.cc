#include "ops/core/functions/vmap.h"

#include <algorithm>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "framework/ir/rewrite.h"
#include "ops/core/creation.h"
#include "ops/core/functions/body.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/conv.h"
#include "ops/core/products/dot.h"
#include "ops/kernels/kernels.h"

namespace weft {

using internal::plus_one;

namespace {

// Example k has the number start + k * step.
struct ExamplePositions {
  int64_t start = 0, step = 1;
};

// A value of the body: a value that all examples share, or the values of all examples along dim 0, or, if these have
// the most dims that a tensor can have, a list of them.
struct BatchedValue {
  Tensor t;
  bool batched = false;
  std::optional<ExamplePositions> positions = {};  // a 0-d integer whose values are known
  std::vector<Tensor> each = {};
};
using Many = std::vector<BatchedValue>;

Shape with_front(int64_t first, Shape rest) {
  rest.insert(0, first);
  return rest;
}

// The attributes of a call whose operands and results have `count` examples in front. In the program's own ops, no
// name of an attribute has a meaning.
Attrs shifted(const Node& n, int64_t count) {
  const Attrs& attrs = n.attrs;
  if (n.op->is(kCustom)) return attrs;
  Attrs now = attrs;
  if (attrs.has("dim")) now = now.with("dim", attrs.i("dim") + 1);
  if (attrs.has("dims")) now = now.with("dims", plus_one(attrs.ints("dims")));
  for (const char* extents : {"shape", "end"})
    if (attrs.has(extents)) now = now.with(extents, with_front(count, attrs.ints(extents)));
  for (const char* offsets : {"begin", "lo", "hi", "interior"})
    if (attrs.has(offsets)) now = now.with(offsets, with_front(0, attrs.ints(offsets)));
  if (attrs.has("begin")) now = now.with("step", with_front(1, attrs.ints("step")));
  return now;
}

// Whether the record says that a call with these attributes keeps the examples, dim 0, apart. The number of examples is
// arbitrary here, so that no other extent is mistaken for it.
bool keeps_examples_apart(const Node& n, std::span<const TensorType> in) {
  constexpr int64_t kCount = 7919;
  if (!n.op->dims) return false;
  const auto in_front = [](TensorType t) {
    t.shape = with_front(kCount, t.shape);
    return t;
  };
  std::vector<TensorType> ins, outs;
  for (const TensorType& t : in) ins.push_back(in_front(t));
  for (const TensorType& t : n.outputs) outs.push_back(in_front(t));
  DimMap map;
  try {
    const Attrs attrs = shifted(n, kCount);
    const Types types = infer_types(*n.op, attrs, ins);
    for (size_t i = 0; i < outs.size(); ++i)
      if (types[i].shape != outs[i].shape || types[i].dtype != outs[i].dtype) return false;
    map = n.op->dims(attrs, ins, outs);
  } catch (const Error&) {
    return false;
  }
  int examples = -1;
  for (const auto* side : {&map.in, &map.out})
    for (const DimFactors& dims : *side) {
      if (dims.empty() || dims[0].size() != 1) return false;
      if (examples < 0) examples = dims[0][0];
      for (size_t d = 0; d < dims.size(); ++d)
        if ((d == 0) != (std::find(dims[d].begin(), dims[d].end(), examples) != dims[d].end())) return false;
    }
  return examples >= 0 && map.factors[examples].kind == FactorKind::kPass;
}

// Whether the node, or a body of it, draws random numbers.
bool draws(const Node& n) {
  if (n.op->is(kRandom)) return true;
  for (const auto& [key, value] : n.attrs.entries())
    if (const auto* body = std::get_if<Ref<Graph>>(&value))
      for (int32_t id = 0; id < (*body)->size(); ++id)
        if (draws((*body)->node(id))) return true;
  return false;
}

// Runs a body on all examples at once.
class BodyMapper {
 public:
  BodyMapper(const Graph& g, int64_t count) : g_(g), count_(count), values_(g.size()) {}

  Many run(const Many& in) {
    for (size_t i = 0; i < in.size(); ++i) values_[g_.inputs[i].node] = {in[i]};
    const std::vector<int32_t> last = last_uses(g_);
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (is_argument(n) || (last[id] < 0 && !n.op->is(kSideEffect))) continue;
      const internal::OriginScope at(n, internal::thread_state.backward || n.backward);
      const EnableGrad record(grad_enabled() && !n.no_grad);
      Many operands;
      for (Value v : n.inputs) operands.push_back(values_[v.node][v.index]);
      values_[id] = results(n, operands);
      for (Value v : n.inputs)
        if (last[v.node] == id) values_[v.node].clear();
    }
    Many out;
    for (Value v : g_.outputs) out.push_back(values_[v.node][v.index]);
    return out;
  }

  /// The value with the examples in front.
  Tensor in_front(const BatchedValue& m) const {
    return m.batched ? m.t : broadcast_to(m.t, with_front(count_, m.t.shape()));
  }

 private:
  /// An op that needs more than one more dim in front to give the results of all examples.
  struct Row {
    const OpDef* op;
    Many (BodyMapper::*map)(const Node&, const Many&) const;
  };

  Many results(const Node& n, const Many& in) {
    const bool any = std::any_of(in.begin(), in.end(), [](const BatchedValue& m) { return m.batched; });
    WEFT_CHECK(!draws(n),
               "vmap: the function draws random numbers, which would be the same for all examples; draw "
               "them outside and pass them as an argument");
    WEFT_CHECK(!any || !(n.op->is(kSideEffect) || n.op->is(kCollective)), "vmap: the function calls ", n.op->name,
               ", which acts once for each example; need ops that only compute");
    if (!any) return call(n, tensors(in), n.attrs, false);
    std::vector<TensorType> types;
    for (Value v : n.inputs) types.push_back(g_.type(v));
    const auto full = [](const TensorType& t) { return t.shape.size() == kMaxDims; };
    const bool no_room =
        std::any_of(types.begin(), types.end(), full) || std::any_of(n.outputs.begin(), n.outputs.end(), full);
    if (count_ == 0) return nothing(n);
    if (no_room) return one_by_one(n, in);
    if (n.op->is(kPointwise)) return pointwise(n, in);
    static constexpr Row kRows[] = {
        {&reshape_op, &BodyMapper::reshaped},          {&permute_op, &BodyMapper::permuted},
        {&broadcast_op, &BodyMapper::broadcast},       {&dot_op, &BodyMapper::dot},
        {&index_select_op, &BodyMapper::index_select}, {&conv_op, &BodyMapper::conv},
        {&index_add_op, &BodyMapper::index_add},       {&index_copy_op, &BodyMapper::index_copy},
        {&custom_grad_op, &BodyMapper::custom_grad},   {&checkpoint_op, &BodyMapper::checkpoint},
        {&dynamic_slice_op, &BodyMapper::one_by_one},  {&dynamic_update_slice_op, &BodyMapper::one_by_one},
    };
    for (const Row& row : kRows)
      if (n.op == row.op) return (this->*row.map)(n, in);
    if (keeps_examples_apart(n, types)) return generic(n, in);
    WEFT_CHECK(n.op->decompose || !n.op->is(kCustom), "vmap: ", n.op->name,
               " cannot be applied to a batch of examples; need `dims`, `infer` and a kernel that take one more dim in "
               "front, or `decompose`");
    WEFT_CHECK(n.op->decompose && !n.op->is(kReadsTape), "vmap: the function contains ", n.op->name,
               ", which cannot be applied to a batch of examples; need ops that compute along given dims: elementwise "
               "ops, reductions, products, views, look-ups");
    const Ref<Graph> parts =
        capture_graph([&](std::span<const Tensor> args) { return n.op->decompose(n.attrs, args); }, types);
    return BodyMapper(*parts, count_).run(in);
  }

  static std::vector<Tensor> tensors(const Many& in) {
    std::vector<Tensor> all;
    for (const BatchedValue& m : in) all.push_back(m.t);
    return all;
  }

  static Many call(const Node& n, const std::vector<Tensor>& in, const Attrs& attrs, bool batched = true) {
    Many out;
    for (Tensor& t : dispatch_multi(*n.op, internal::pointers(in), attrs)) out.push_back({std::move(t), batched});
    return out;
  }

  /// A call for each example.
  Many one_by_one(const Node& n, const Many& in) const {
    std::vector<std::vector<Tensor>> results(n.outputs.size());
    for (int64_t k = 0; k < count_; ++k) {
      std::vector<Tensor> own;
      for (const BatchedValue& m : in)
        own.push_back(!m.each.empty() ? m.each[static_cast<size_t>(k)] : m.batched ? select(m.t, 0, k) : m.t);
      const std::vector<Tensor> y = dispatch_multi(*n.op, internal::pointers(own), n.attrs);
      for (size_t o = 0; o < y.size(); ++o) results[o].push_back(y[o]);
    }
    Many out;
    for (std::vector<Tensor>& all : results) {
      if (all[0].dim() < kMaxDims) {
        out.push_back({stack(all), true});
      } else {
        out.push_back({.batched = true, .each = std::move(all)});
      }
    }
    return out;
  }

  Many generic(const Node& n, const Many& in) const {
    std::vector<Tensor> all;
    for (const BatchedValue& m : in) all.push_back(in_front(m));
    return call(n, all, shifted(n, count_));
  }

  Many pointwise(const Node& n, const Many& in) const {
    const Shape shape = with_front(count_, n.outputs[0].shape);
    std::vector<Tensor> all;
    for (const BatchedValue& m : in) {
      if (!m.batched && m.t.dim() == 0) {
        all.push_back(m.t);
        continue;
      }
      Tensor t = m.t;
      if (m.batched && t.dim() == 1 && shape.size() > 1) {
        Shape s = Shape::filled(shape.size(), 1);
        s[0] = count_;
        t = reshape(t, s);
      }
      all.push_back(broadcast_to(t, shape));
    }
    Many out = call(n, all, n.attrs);
    out[0].positions = moved(n, in);
    return out;
  }

  /// Positions plus, minus or times a number.
  std::optional<ExamplePositions> moved(const Node& n, const Many& in) const {
    constexpr int64_t kMost = int64_t{1} << 31;  // far below where the arithmetic could overflow
    if (n.op == &cast_op) {
      const DType to = n.outputs[0].dtype;
      return to == kInt64 || to == kInt32 ? in[0].positions : std::nullopt;
    }
    if (n.inputs.size() != 2 || n.op->scalar < 0) return {};
    const auto number = [&](int i) -> std::optional<int64_t> {
      const Node& from = g_.node(n.inputs[i]);
      const int64_t* v = from.op == &constant_op ? std::get_if<int64_t>(from.attrs.find("value")) : nullptr;
      return v && *v > -kMost && *v < kMost ? std::optional(*v) : std::nullopt;
    };
    const bool first = in[0].positions.has_value();
    const std::optional<ExamplePositions> p = in[first ? 0 : 1].positions;
    const std::optional<int64_t> c = number(first ? 1 : 0);
    if (!p || !c || n.outputs[0].dtype != g_.type(n.inputs[first ? 0 : 1]).dtype) return {};
    ExamplePositions now = *p;
    switch (static_cast<kernels::Pw>(n.op->scalar)) {
      case kernels::Pw::add:
        now.start += *c;
        break;
      case kernels::Pw::sub:
        now = first ? ExamplePositions{p->start - *c, p->step} : ExamplePositions{*c - p->start, -p->step};
        break;
      case kernels::Pw::mul:
        now = {p->start * *c, p->step * *c};
        break;
      default:
        return {};
    }
    const int64_t last = now.start + (count_ - 1) * now.step;
    const auto fits = [](int64_t v) { return v > -kMost && v < kMost; };
    return fits(now.start) && fits(now.step) && fits(last) ? std::optional(now) : std::nullopt;
  }

  Many reshaped(const Node& n, const Many& in) const {
    Many out = generic(n, in);
    if (n.outputs[0].shape.numel() == 1) out[0].positions = in[0].positions;
    return out;
  }

  Many permuted(const Node& n, const Many& in) const {
    return call(n, tensors(in), {{"dims", with_front(0, plus_one(n.attrs.ints("dims")))}});
  }

  Many broadcast(const Node& n, const Many& in) const {
    const Tensor& x = in[0].t;
    const Shape& shape = n.outputs[0].shape;
    Shape aligned = Shape::filled(shape.size() + 1, 1);
    aligned[0] = count_;
    for (int d = 1; d < x.dim(); ++d) aligned[shape.size() + 1 - x.dim() + d] = x.size(d);
    return {{broadcast_to(reshape(x, aligned), with_front(count_, shape)), true}};
  }

  // The examples are a batch dim where both operands have them, else a free dim of the operand that has them.
  Many dot(const Node& n, const Many& in) const {
    const bool both = in[0].batched && in[1].batched;
    Attrs attrs = n.attrs;
    for (int k : {0, 1}) {
      if (!in[k].batched) continue;
      const std::string side = k == 0 ? "a" : "b";
      const Shape batch = plus_one(attrs.ints(side + "_batch"));
      attrs = attrs.with(side + "_batch", both ? with_front(0, batch) : batch)
                  .with(side + "_contract", plus_one(attrs.ints(side + "_contract")));
    }
    Many out = call(n, tensors(in), attrs);
    const int64_t batch = n.attrs.ints("a_batch").size();
    const int64_t free_of_a = g_.type(n.inputs[0]).shape.size() - batch - n.attrs.ints("a_contract").size();
    if (!both) out[0].t = movedim(out[0].t, in[0].batched ? batch : batch + free_of_a, 0);
    return out;
  }

  // Examples that share the weights are a larger batch; else each is a group of channels.
  Many conv(const Node& n, const Many& in) const {
    Shape out = n.outputs[0].shape;
    if (!in[1].batched) {
      const Tensor x = flatten(in[0].t, 0, 1);
      return {{reshape(dispatch(conv_op, {&x, &in[1].t}, n.attrs), with_front(count_, out)), true}};
    }
    const Tensor x = flatten(movedim(in_front(in[0]), 0, 1), 1, 2), w = flatten(in[1].t, 0, 1);
    const Attrs attrs = n.attrs.with("groups", n.attrs.i("groups") * count_);
    const int64_t batch = out[0];
    out[0] = count_;
    return {{movedim(reshape(dispatch(conv_op, {&x, &w}, attrs), with_front(batch, out)), 1, 0), true}};
  }

  Many index_select(const Node& n, const Many& in) const {
    const int64_t dim = n.attrs.i("dim");
    const BatchedValue &x = in[0], &index = in[1];  // [count, k] if batched
    if (!index.batched) return call(n, tensors(in), n.attrs.with("dim", dim + 1));
    const int64_t k = index.t.size(1);
    if (!x.batched) {
      Tensor rows = known_rows(x.t, dim, index);
      if (!rows.defined()) {
        const Tensor flat = reshape(index.t, {count_ * k});
        rows = dispatch(index_select_op, {&x.t, &flat}, n.attrs);
      }
      // [..., count * k, ...] -> [count, ..., k, ...]
      Shape split = rows.shape();
      split[dim] = k;
      split.insert(static_cast<int>(dim), count_);
      return {{movedim(reshape(rows, split), dim, 0), true}};
    }
    Shape at = Shape::filled(x.t.dim(), 1), all = x.t.shape();
    at[0] = count_;
    at[dim + 1] = all[dim + 1] = k;
    const Tensor where = broadcast_to(reshape(index.t, at), all);
    Attrs attrs{{"dim", dim + 1}};
    if (n.attrs.has("what")) attrs = attrs.with("what", *n.attrs.find("what"));
    return {{dispatch(gather_op, {&x.t, &where}, attrs), true}};
  }

  Many index_add(const Node& n, const Many& in) const {
    const Tensor x = in_front(in[0]), index = in_front(in[1]), source = in_front(in[2]);
    Shape at = Shape::filled(source.dim(), 1);
    at[0] = count_;
    at[1] = source.size(1);
    const Tensor where = broadcast_to(reshape(index, at), source.shape());
    Attrs attrs{{"dim", int64_t{1}}};
    if (n.attrs.has("what")) attrs = attrs.with("what", *n.attrs.find("what"));
    return {{dispatch(scatter_add_op, {&x, &where, &source}, attrs, n.line), true}};
  }

  // Examples with one index are columns of the rows; else the rows of each are rows of one operand.
  Many index_copy(const Node& n, const Many& in) const {
    const Tensor x = in_front(in[0]), source = in_front(in[2]);
    if (!in[1].batched) {
      const Tensor rows = movedim(x, 0, 1), from = movedim(source, 0, 1);
      return {{movedim(dispatch(index_copy_op, {&rows, &in[1].t, &from}, n.attrs), 1, 0), true}};
    }
    const int64_t rows = x.size(1);
    const TensorOptions numbers{.dtype = kInt64, .device = x.device()};
    const std::string* what = n.attrs.has("what") ? std::get_if<std::string>(n.attrs.find("what")) : nullptr;
    // Indices select rows of their own example.
    const Tensor at = internal::look_up(index_select_op, arange(rows, numbers), 0, flatten(in[1].t),
                                        what ? *what : "index_copy: an index is not a row");
    const Tensor first = repeat_interleave(arange(count_, numbers), in[1].t.size(1), 0) * rows;
    const Tensor to = flatten(x, 0, 1), place = at + first, from = flatten(source, 0, 1);
    return {{reshape(dispatch(index_copy_op, {&to, &place, &from}, n.attrs), x.shape()), true}};
  }

  // The values that a body has for the examples, each with the examples in front.
  std::vector<Tensor> body_results(const Graph& body, const Many& in) const {
    std::vector<Tensor> out;
    for (const BatchedValue& m : BodyMapper(body, count_).run(in)) out.push_back(in_front(m));
    return out;
  }
  static Many as_batched(std::vector<Tensor> all) {
    Many out;
    for (Tensor& t : all) out.push_back({std::move(t), true});
    return out;
  }
  // `own` for the first operands, and the node's others.
  static Many with_rest(std::span<const Tensor> own, std::span<const BatchedValue> rest) {
    Many all = as_batched({own.begin(), own.end()});
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

  // The result keeps the user's derivative, for all examples.
  Many custom_grad(const Node& n, const Many& in) const {
    const auto inputs = static_cast<size_t>(n.attrs.i("inputs"));
    const auto lifted = static_cast<size_t>(n.attrs.i("backward_lifted"));
    const std::span<const BatchedValue> rest = std::span(in).subspan(inputs);
    const CustomGrad mapped(
        [&](std::span<const Tensor> x) { return body_results(*n.attrs.get<Ref<Graph>>("body"), with_rest(x, rest)); },
        [&](std::span<const Tensor> x, std::span<const Tensor> y, std::span<const Tensor> dy) {
          std::vector<Tensor> given(x.begin(), x.end());
          given.insert(given.end(), y.begin(), y.end());
          given.insert(given.end(), dy.begin(), dy.end());
          const std::vector<Tensor> some =
              body_results(*n.attrs.get<Ref<Graph>>("backward"), with_rest(given, rest.subspan(rest.size() - lifted)));
          std::vector<Tensor> all(inputs);
          for (size_t i = 0, k = 0; i < inputs; ++i)
            if (n.attrs.ints("defined")[0] >> i & 1) all[i] = some[k++];
          return all;
        },
        n.line);
    std::vector<Tensor> own;
    for (size_t i = 0; i < inputs; ++i) own.push_back(in_front(in[i]));
    return as_batched(mapped(own));
  }

  Many checkpoint(const Node& n, const Many& in) const {
    return as_batched(checkpoint_n(
        [&](std::span<const Tensor> args) {
          Many own;
          for (size_t i = 0; i < args.size(); ++i) own.push_back({args[i], in[i].batched});
          return body_results(*n.attrs.get<Ref<Graph>>("body"), own);
        },
        tensors(in), n.line));
  }

  // The results for no examples.
  static Many nothing(const Node& n) {
    Many out;
    for (TensorType t : n.outputs) {
      if (t.shape.size() == kMaxDims) t.shape.pop_back();  // no node reads it
      t.shape.insert(0, 0);
      out.push_back({internal::full_of(t, 0), true});
    }
    return out;
  }

  // The slices of x at known positions, as one slice; undefined where that cannot be.
  Tensor known_rows(const Tensor& x, int64_t dim, const BatchedValue& index) const {
    if (!index.positions || count_ == 0) return {};
    const ExamplePositions p = *index.positions;
    const int64_t last = p.start + (count_ - 1) * p.step;
    if (p.step <= 0 || p.start < 0 || last >= x.size(dim)) return {};
    return slice(x, dim, p.start, last + 1, p.step);
  }

  const Graph& g_;
  const int64_t count_;
  std::vector<Many> values_;
};

}  // namespace

namespace internal {

std::vector<Tensor> run_vmap(const TensorFn& fn, std::span<const Tensor> in,
                             std::span<const std::optional<int64_t>> in_dims, int64_t out_dim, SourceLine line,
                             bool positions) {
  const LineScope here(line);
  std::optional<int64_t> count;
  Many values;
  std::vector<TensorType> types;
  for (size_t i = 0; i < in.size(); ++i) {
    WEFT_CHECK(in[i].defined(), "vmap: tensor ", i, " of the arguments is undefined; need one with a value");
    TensorType type = in[i].type();
    if (!in_dims[i]) {
      values.push_back({in[i]});
    } else {
      WEFT_CHECK(type.shape.size() > 0, "vmap: tensor ", i, " of the arguments is ", type,
                 ", which has no dim of examples; need one, or std::nullopt in in_dims");
      const int64_t d = normalize_dim(*in_dims[i], type.shape.size(), "vmap");
      WEFT_CHECK(count.value_or(type.shape[d]) == type.shape[d], "vmap: tensor ", i, " of the arguments is ", type,
                 " with ", type.shape[d], " examples in dim ", d, "; need ", *count,
                 ", as the arguments before it have");
      count = type.shape[d];
      values.push_back({movedim(in[i], d, 0), true});
      type.shape.erase(static_cast<int>(d));
    }
    types.push_back(type);
  }
  WEFT_CHECK(count, "vmap: no argument has a dim of examples; need one whose in_dims is a number");
  if (positions && *count < int64_t{1} << 31) values[0].positions = ExamplePositions{};
  const Body body = capture_expanded(positions ? "kernel" : "vmap", fn, types, /*positions_only=*/positions);
  for (const Tensor& t : body.lifted) values.push_back({t});
  for (Value v : body.graph->outputs)
    WEFT_CHECK(body.graph->type(v).shape.size() < kMaxDims, "vmap: the function returns ", body.graph->type(v),
               " for one example; need at most ", kMaxDims - 1, " dims");
  BodyMapper mapper(*body.graph, *count);
  std::vector<Tensor> out;
  for (const BatchedValue& m : mapper.run(values)) {
    const Tensor t = mapper.in_front(m);
    out.push_back(movedim(t, 0, normalize_dim(out_dim, t.dim(), "vmap")));
  }
  return out;
}

Tensor run_kernel(const std::function<Tensor(std::span<const Index>)>& fn, const Shape& extents,
                  const KernelOptions& options, SourceLine line) {
  const LineScope here(line);
  for (int64_t n : extents)
    WEFT_CHECK(n >= 0, "kernel: the extents are ", extents, "; need numbers that are not negative");
  std::vector<Index> indices;
  const std::function<Tensor()> from = [&]() -> Tensor {
    const auto level = static_cast<int>(indices.size());
    if (level == extents.size()) {
      Tensor y = fn(indices);
      WEFT_CHECK(y.defined() && y.dim() == 0, "kernel: the function returned ",
                 y.defined() ? y.type().to_string() : "an undefined tensor",
                 "; need one number, computed from the indices and from elements of tensors");
      return y;
    }
    const Tensor all = arange(extents[level], {.dtype = kInt64, .device = options.device});
    const auto body = [&](std::span<const Tensor> i) {
      indices.push_back(Index(i[0]));
      std::vector<Tensor> y{from()};
      indices.pop_back();
      return y;
    };
    const std::optional<int64_t> dim = 0;
    return run_vmap(body, {&all, 1}, {&dim, 1}, 0, line, true)[0];
  };
  return from();
}

}  // namespace internal
}  // namespace weft
