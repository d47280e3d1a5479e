#include "ops/composite/batch_dims.h"

#include "framework/autodiff/grad.h"
#include "framework/ir/op_def.h"
#include "ops/core/functions/loop.h"

namespace weft::internal {

BatchDims::BatchDims(const Graph& g, size_t inputs, int64_t rows) : rows_(rows) {
  batch_ = new_class();
  std::vector<bool> depends(g.size());
  for (size_t i = 0; i < inputs; ++i) {
    if (g.type(g.inputs[i]).shape.empty()) continue;
    join(class_of(g, g.inputs[i], 0), batch_);
    depends[g.inputs[i].node] = true;
  }
  visit(g, std::move(depends));
}

std::vector<int> BatchDims::of(const Graph& g, Value v) {
  const Shape& shape = g.type(v).shape;
  std::vector<int> dims;
  if (rows_ == 1) {
    if (shape.empty() || !meets_batch(g, v.node)) return {};
    int d = 0;
    while (d < shape.size() && shape[d] != 1) ++d;
    return {d < shape.size() ? d : 0};
  }
  for (int d = 0; d < shape.size(); ++d)
    if (find(class_of(g, v, d)) == find(batch_)) dims.push_back(d);
  return dims;
}

bool BatchDims::meets_batch(const Graph& g, int32_t id) const {
  const std::vector<bool>& depends = depends_.at(&g);
  if (depends[id]) return true;
  std::vector<bool> random(g.size());
  random[id] = true;
  for (int32_t u = id + 1; u < g.size(); ++u) {
    const Node& n = g.node(u);
    bool reads = false, batch = false;
    for (Value v : n.inputs) {
      reads |= random[v.node];
      batch |= !random[v.node] && depends[v.node] && !g.type(v).shape.empty();
    }
    if (!reads) continue;
    if (batch && n.op->is(kPointwise)) return true;
    random[u] = !batch && (n.op->is(kPointwise) || n.op->is(kView)) && !n.outputs[0].shape.empty();
  }
  return false;
}

int BatchDims::new_class() {
  parent_.push_back(static_cast<int>(parent_.size()));
  return parent_.back();
}

int BatchDims::class_of(const Graph& g, Value v, int dim) {
  const auto [at, fresh] = first_.try_emplace({&g, v}, static_cast<int>(parent_.size()));
  if (fresh)
    for (int d = 0; d < g.type(v).shape.size(); ++d) new_class();
  return at->second + dim;
}

int BatchDims::find(int c) {
  while (parent_[c] != c) c = parent_[c] = parent_[parent_[c]];
  return c;
}

// The dims of v after the first `skipped` are the dims of w.
void BatchDims::join_values(const Graph& a, Value v, int skipped, const Graph& b, Value w) {
  for (int d = 0; d < b.type(w).shape.size(); ++d) join(class_of(a, v, d + skipped), class_of(b, w, d));
}

void BatchDims::visit(const Graph& g, std::vector<bool> depends) {
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (is_argument(n)) continue;
    for (Value v : n.inputs) depends[id] = depends[id] || depends[v.node];
    if (n.op->is(kCallsBody)) {
      visit_body(g, n, id, depends);
      continue;
    }
    if (!n.op->dims) continue;
    std::vector<TensorType> in;
    for (Value v : n.inputs) in.push_back(g.type(v));
    const DimMap map = n.op->dims(n.attrs, in, {n.outputs.begin(), n.outputs.size()});
    std::vector<int> classes;
    for (size_t f = 0; f < map.factors.size(); ++f) classes.push_back(new_class());
    const auto join_dims = [&](Value v, const DimFactors& dims) {
      for (size_t d = 0; d < dims.size(); ++d)
        for (int f : dims[d]) {
          if (map.factors[f].size == 1) continue;
          join(class_of(g, v, static_cast<int>(d)), classes[f]);  // the major factor
          break;
        }
    };
    for (size_t i = 0; i < map.in.size(); ++i) join_dims(n.inputs[i], map.in[i]);
    for (size_t o = 0; o < map.out.size(); ++o) join_dims({id, static_cast<int32_t>(o)}, map.out[o]);
  }
  depends_[&g] = std::move(depends);
}

void BatchDims::visit_body(const Graph& g, const Node& n, int32_t id, std::vector<bool>& depends) {
  const Graph& body = *n.attrs.get<Ref<Graph>>("body");
  const bool loops = n.op == &loop_op;
  const size_t carries = loops ? static_cast<size_t>(n.attrs.i("carries")) : 0;
  const size_t fixed = loops ? carries + static_cast<size_t>(n.attrs.i("stacked")) : 0;
  std::vector<bool> inside(body.size());
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    const bool stacked = i >= carries && i < fixed;
    join_values(g, n.inputs[i], stacked ? 1 : 0, body, body.inputs[i]);
    // A carry may depend on the batch after the first iteration.
    inside[body.inputs[i].node] = depends[n.inputs[i].node] || (i < carries && depends[id]);
  }
  for (size_t o = 0; o < body.outputs.size(); ++o)
    join_values(g, {id, static_cast<int32_t>(o)}, loops && o >= carries ? 1 : 0, body, body.outputs[o]);
  for (size_t c = 0; c < carries; ++c) join_values(body, body.inputs[c], 0, body, body.outputs[c]);
  visit(body, std::move(inside));
}

}  // namespace weft::internal
