#include "distributed/overlap/async_tp.h"

#include <algorithm>
#include <map>

#include "compiler/cost/roofline.h"
#include "distributed/overlap/dependencies.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

bool contains(const Shape& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

// The result dim of a product that comes from dim d of operand i; -1 if d is a batch dim or contracted.
int result_dim(const Graph& g, const Node& dot, int i, int64_t d) {
  const Shape &batch = dot.attrs.ints(i ? "b_batch" : "a_batch"),
              &contract = dot.attrs.ints(i ? "b_contract" : "a_contract");
  if (contains(batch, d) || contains(contract, d)) return -1;
  int at = batch.size();
  if (i == 1) at = g.type(dot.inputs[0]).shape.size() - dot.attrs.ints("a_contract").size();
  for (int64_t k = 0; k < d; ++k) at += !contains(batch, k) && !contains(contract, k);
  return at;
}

// The operand and the operand's dim from which dim d of a product's result comes; {-1, -1} for a batch dim.
std::pair<int, int> operand_dim(const Graph& g, const Node& dot, int64_t d) {
  for (int i : {0, 1})
    for (int k = 0; k < g.type(dot.inputs[i]).shape.size(); ++k)
      if (result_dim(g, dot, i, k) == d) return {i, k};
  return {-1, -1};
}

bool even(const Node& n) { return !n.attrs.has("sizes") && !n.attrs.has("extent") && n.attrs.i("parts") > 1; }

// Seconds for which a step of a ring keeps the cores of a rank from computing.
double busy_seconds(const Machine& machine, int nodes, double bytes, double send) {
  if (!machine.shares_cores) return 0;
  if (nodes == 1) return send;  // the link is the memory
  // Each side copies between its own memory and the network driver's memory.
  return std::min(send, roofline_seconds(machine, {.bytes = 4 * bytes, .written = 2 * bytes}));
}

void predict(const Graph& g, const Mesh& mesh, const Machine& machine, ProductRing& r) {
  const Node& c = g.node(r.collective);
  const std::string& axes = c.attrs.get<std::string>("axes");
  const auto p = static_cast<double>(c.attrs.i("parts"));
  const double bytes = static_cast<double>(collective_bytes(g, c)) / p,
               send = collective_seconds(Collective::kPermute, bytes, mesh, axes, machine),
               busy = busy_seconds(machine, nodes_of(mesh, axes, machine), bytes, send);
  double whole = 0, pieces = 0, joined = 0;
  for (int32_t id : r.dots) {
    const double seconds = compute_seconds(machine, g, g.node(id));
    whole += seconds;
    pieces += machine.launch + (seconds - machine.launch) / p;
    // Pieces are copied or added.
    const auto result = static_cast<double>(g.node(id).outputs[0].nbytes());
    joined += roofline_seconds(machine, {.bytes = 2 * result, .written = result});
  }
  r.plain_seconds = whole + communication_seconds(machine, mesh, g, c);
  r.ring_seconds = (p - 1) * std::max(pieces + busy, send) + pieces + joined;
}

class RingApplier {
 public:
  RingApplier(const Graph& g, const std::vector<ProductRing>& rings, std::map<int64_t, int64_t>* steps)
      : g_(g), capture_(Capture::kStep), values_(g.size()), steps_(steps) {
    for (const ProductRing& r : rings) {
      ring_at_[r.gather ? r.dots[0] : r.collective] = &r;
      skipped_.push_back(r.gather ? r.collective : r.dots[0]);
      if (r.gather) skipped_.insert(skipped_.end(), r.dots.begin() + 1, r.dots.end());
    }
    for (int32_t id = 0; id < g.size(); ++id)
      if (g.node(id).op->is(kCollective)) site_ = std::max(site_, g.node(id).attrs.i("site", 0));
  }

  Ref<Graph> run() {
    NoGrad guard;
    Graph& to = capture_.graph();
    to.captured = g_.captured;
    to.cells = g_.cells;
    to.inputs.resize(g_.inputs.size());
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (const auto it = ring_at_.find(id); it != ring_at_.end()) {
        const internal::OriginScope origin(n, n.backward);
        replaced_ = g_.node(it->second->collective).attrs.i("site", 0);
        it->second->gather ? gather(*it->second) : scatter(*it->second);
      } else if (std::find(skipped_.begin(), skipped_.end(), id) == skipped_.end()) {
        copy(id);
      }
    }
    for (const CellWrite& w : g_.writes) to.writes.push_back({w.cell, capture_.value_of(get(w.value))});
    std::vector<Tensor> out;
    for (Value v : g_.outputs) out.push_back(get(v));
    Ref<Graph> next = capture_.finish(out);
    next->stage = g_.stage;
    return next;
  }

 private:
  const Tensor& get(Value v) { return values_[v.node][v.index]; }

  void copy(int32_t id) {
    Node n = g_.node(id);
    auto& mine = values_[id];
    if (!mine.empty()) return;
    for (Value& v : n.inputs) {
      if (values_[v.node].empty()) copy(v.node);
      v = capture_.value_of(get(v));
    }
    const int32_t now = capture_.graph().add(std::move(n));
    if (is_argument(g_.node(id))) capture_.graph().inputs[g_.node(id).attrs.i("index")] = {now, 0};
    for (size_t i = 0; i < g_.node(id).outputs.size(); ++i)
      mine.push_back(capture_.wrap({now, static_cast<int32_t>(i)}));
  }
  // Copies the operand now: a ring computes all products of one gather at the place of the first, so an operand may
  // come later in the old order.
  const Tensor& operand(Value v) {
    if (values_[v.node].empty()) copy(v.node);
    return get(v);
  }

  Tensor shifted(const Tensor& x, const std::string& axes, int64_t shift) {
    ++site_;
    if (steps_) steps_->emplace(site_, replaced_);
    return dispatch(permute_ranks_op, {&x}, {{"axes", axes}, {"shift", shift}, {"site", site_}});
  }
  // First index of block (rank + k) mod p; a block has n indices.
  Tensor begin_of(const std::string& axes, int64_t k, int64_t p, int64_t n) {
    const Tensor me = dispatch(rank_coordinate_op, {}, {{"axes", axes}}) + k;
    return where(me >= p, me - p, me) * n;
  }
  std::vector<Tensor> starts(int dims, int dim, const Tensor& at) {
    std::vector<Tensor> s(static_cast<size_t>(dims), constant(int64_t{0}, kInt64));
    s[dim] = at;
    return s;
  }

  // In step k, rank r computes with the piece of rank r + k.
  void gather(const ProductRing& ring) {
    const Node& c = g_.node(ring.collective);
    const std::string& axes = c.attrs.get<std::string>("axes");
    const int64_t p = c.attrs.i("parts");
    Tensor piece = operand(c.inputs[0]);
    std::vector<Tensor> out;
    for (int64_t k = 0; k < p; ++k) {
      const Tensor next = k + 1 < p ? shifted(piece, axes, -1) : Tensor();
      for (size_t i = 0; i < ring.dots.size(); ++i) {
        const Node& dot = g_.node(ring.dots[i]);
        const int side = dot.inputs[0].node == ring.collective ? 0 : 1;
        const Tensor other = operand(dot.inputs[1 - side]);
        const Tensor y =
            side == 0 ? dispatch(dot_op, {&piece, &other}, dot.attrs) : dispatch(dot_op, {&other, &piece}, dot.attrs);
        const int dim = result_dim(g_, dot, side, c.attrs.i("dim"));
        if (k == 0) out.push_back(zeros(dot.outputs[0].shape, {.dtype = y.dtype()}));
        out[i] = dynamic_update_slice(out[i], y, starts(y.dim(), dim, begin_of(axes, k, p, y.size(dim))));
      }
      piece = next;
    }
    for (size_t i = 0; i < ring.dots.size(); ++i) values_[ring.dots[i]] = {out[i]};
  }

  // In step k, rank r adds its part of block r - 1 - k to its neighbour's sum.
  void scatter(const ProductRing& ring) {
    const Node &c = g_.node(ring.collective), &dot = g_.node(ring.dots[0]);
    const std::string& axes = c.attrs.get<std::string>("axes");
    const int64_t p = c.attrs.i("parts");
    const auto [side, dim] = operand_dim(g_, dot, c.attrs.i("dim"));
    const Tensor whole = operand(dot.inputs[side]), other = operand(dot.inputs[1 - side]);
    Shape sizes = whole.shape();
    sizes[dim] /= p;
    Tensor sum;
    for (int64_t k = 0; k < p; ++k) {
      const Tensor before = k ? shifted(sum, axes, 1) : Tensor();
      const Tensor part =
          dynamic_slice(whole, starts(whole.dim(), dim, begin_of(axes, p - 1 - k, p, sizes[dim])), sizes);
      const Tensor y =
          side == 0 ? dispatch(dot_op, {&part, &other}, dot.attrs) : dispatch(dot_op, {&other, &part}, dot.attrs);
      sum = k ? before + y : y;
    }
    values_[ring.collective] = {sum};
  }

  const Graph& g_;
  Capture capture_;
  std::vector<std::vector<Tensor>> values_;
  std::map<int32_t, const ProductRing*> ring_at_;  // key: the node that the ring replaces
  std::vector<int32_t> skipped_;
  int64_t site_ = 0, replaced_ = 0;  // the last new site; the site of the collective that becomes a ring
  std::map<int64_t, int64_t>* steps_;
};

}  // namespace

AsyncTp parse_async_tp(std::string_view text) {
  if (text == "auto") return AsyncTp::kAuto;
  if (text == "on") return AsyncTp::kOn;
  WEFT_CHECK(text == "off", "async_tp: got '", text, "'; need auto, on or off");
  return AsyncTp::kOff;
}

std::vector<ProductRing> choose_rings(const Graph& g, const Mesh& mesh, const Machine& machine, AsyncTp mode,
                                      std::vector<ProductRing>* declined) {
  std::vector<ProductRing> rings;
  if (mode == AsyncTp::kOff) return rings;
  const Dependencies flow(g);
  std::vector<std::vector<int32_t>> readers(g.size());
  for (int32_t id = 0; id < g.size(); ++id)
    if (flow.live[id])
      for (Value v : g.node(id).inputs) readers[v.node].push_back(id);
  std::vector<bool> kept(g.size()), taken(g.size());
  for (Value v : g.outputs) kept[v.node] = true;
  for (const CellWrite& w : g.writes) kept[w.value.node] = true;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (!flow.live[id]) continue;
    ProductRing r{id, {}, n.op == &all_gather_op};
    if (n.op == &all_gather_op && even(n) && !kept[id] && !readers[id].empty()) {
      bool fits = true;
      for (int32_t to : readers[id]) {
        const Node& dot = g.node(to);
        fits = fits && dot.op == &dot_op && !taken[to] && dot.inputs[0].node != dot.inputs[1].node &&
               result_dim(g, dot, dot.inputs[0].node == id ? 0 : 1, n.attrs.i("dim")) >= 0;
        // The ring computes all products at the place of the first, so none may depend on another.
        fits = fits && (to == readers[id][0] || flow.ready[to] < readers[id][0]);
        r.dots.push_back(to);
      }
      if (!fits) continue;
    } else if (n.op == &reduce_scatter_op && even(n) && n.attrs.get<std::string>("op") == "sum") {
      const int32_t from = n.inputs[0].node;
      const Node& dot = g.node(from);
      if (dot.op != &dot_op || kept[from] || taken[from] || readers[from].size() != 1 ||
          operand_dim(g, dot, n.attrs.i("dim")).first < 0)
        continue;
      r.dots = {from};
    } else {
      continue;
    }
    predict(g, mesh, machine, r);
    if (mode == AsyncTp::kAuto && r.ring_seconds >= r.plain_seconds) {
      if (declined) declined->push_back(std::move(r));
      continue;
    }
    for (int32_t d : r.dots) taken[d] = true;
    rings.push_back(std::move(r));
  }
  return rings;
}

Ref<Graph> apply_rings(const Graph& g, const std::vector<ProductRing>& rings, std::map<int64_t, int64_t>* steps) {
  if (rings.empty()) return nullptr;
  return RingApplier(g, rings, steps).run();
}

}  // namespace weft::dist
