#include "distributed/overlap/bucket.h"

#include <algorithm>
#include <map>

#include "compiler/passes/new_node.h"
#include "distributed/overlap/dependencies.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/indexing/view.h"

namespace weft::dist {
namespace {

bool can_share(const Graph& g, const Node& n) {
  if (n.op != &all_reduce_op && n.op != &all_gather_op && n.op != &reduce_scatter_op) return false;
  return !n.attrs.has("sizes") && !n.attrs.has("extent") && g.type(n.inputs[0]).shape.numel() > 0;
}

// A key that is equal for collectives that may share a bucket.
std::string key_of(const Graph& g, const Node& n) {
  std::string key = str_cat(n.op->name, " ", n.attrs.get<std::string>("axes"), " ", g.type(n.inputs[0]).dtype,
                            n.backward ? " backward" : "");
  if (n.attrs.has("op")) key += " " + n.attrs.get<std::string>("op");
  if (n.attrs.b("identity_grad", false)) key += " identity_grad";
  return key;
}

class BucketApplier {
 public:
  BucketApplier(const Graph& g, const Buckets& buckets)
      : g_(g),
        flow_(g),
        buckets_(buckets),
        bucket_(g.size(), -1),
        packed_(buckets.size()),
        r_(g),
        copy_(g, r_, [this](int32_t id) { return make(id); }) {
    for (size_t b = 0; b < buckets.size(); ++b)
      for (int32_t id : buckets[b]) bucket_[id] = static_cast<int>(b);
  }

  Ref<Graph> run() {
    // Adds a bucket at the first node that needs it, when all its operands exist.
    for (int32_t id = 0; id < g_.size(); ++id)
      if (flow_.live[id] && !flow_.light[id] && bucket_[id] < 0) copy_({id, 0});
    copy_.copy_results();
    return r_.finish();
  }

 private:
  bool make(int32_t id) {
    const int b = bucket_[id];
    if (b < 0) return false;
    WEFT_BUG_IF(packed_[b], "bucket: %", id, " (", g_.node(id).op->name, ") depends on itself");
    packed_[b] = true;
    pack(buckets_[b]);
    return true;
  }

  Value add(const OpDef& op, std::initializer_list<Value> in, Attrs attrs, const Node& n) {
    return add_node(r_.graph(), op, std::span(in.begin(), in.size()), std::move(attrs), n);
  }
  Value reshaped(Value v, const Shape& shape, const Node& n) {
    return r_.graph().type(v).shape == shape ? v : add(reshape_op, {v}, {{"shape", shape}}, n);
  }
  Value permuted(Value v, const Shape& dims, const Node& n) { return add(permute_op, {v}, {{"dims", dims}}, n); }

  // A shape's numbers of elements before, in and after `dim`.
  struct ShapeSplit {
    int64_t outer = 1, extent = 1, inner = 1;
    ShapeSplit(const Shape& s, int64_t dim) : extent(s[static_cast<int>(dim)]) {
      for (int d = 0; d < s.size(); ++d) {
        if (d != dim) (d < dim ? outer : inner) *= s[d];
      }
    }
  };

  void pack(const std::vector<int32_t>& members) {
    const Node& first = g_.node(members[0]);
    const OpDef& op = *first.op;
    const bool scatter = &op == &reduce_scatter_op, gather = &op == &all_gather_op;
    const int64_t parts = scatter || gather ? first.attrs.i("parts") : 1;
    // Operands are packed as [rows, elements], with one row for each rank of a reduce_scatter.
    std::vector<Value> packed;
    std::vector<int64_t> sizes;
    for (int32_t id : members) {
      const Node& n = g_.node(id);
      Value v = copy_(n.inputs[0]);
      const Shape& shape = g_.type(n.inputs[0]).shape;
      if (scatter) {
        const ShapeSplit s(shape, n.attrs.i("dim"));
        const int64_t own = s.extent / parts;
        if (s.outer > 1) v = permuted(reshaped(v, {s.outer, parts, own, s.inner}, n), {1, 0, 2, 3}, n);
        v = reshaped(v, {parts, s.outer * own * s.inner}, n);
      } else {
        v = reshaped(v, {1, shape.numel()}, n);
      }
      sizes.push_back(r_.graph().type(v).shape[1]);
      packed.push_back(v);
    }
    const Value whole = add_node(r_.graph(), concat_op, packed, {{"dim", int64_t{1}}}, first);
    Attrs attrs = first.attrs;
    if (scatter || gather) attrs = attrs.with("dim", int64_t{0});
    const Value done = add(op, {whole}, attrs, first);
    const int64_t rows = r_.graph().type(done).shape[0];
    int64_t at = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      const Node& n = g_.node(members[i]);
      Value v = add(slice_op, {done},
                    {{"begin", Shape{0, at}}, {"end", Shape{rows, at + sizes[i]}}, {"step", Shape{1, 1}}}, n);
      at += sizes[i];
      if (gather) {
        const ShapeSplit s(g_.type(n.inputs[0]).shape, n.attrs.i("dim"));
        if (s.outer > 1) v = permuted(reshaped(v, {parts, s.outer, s.extent, s.inner}, n), {1, 0, 2, 3}, n);
      }
      r_.map({members[i], 0}, reshaped(v, n.outputs[0].shape, n));
    }
  }

  const Graph& g_;
  const Dependencies flow_;
  const Buckets& buckets_;
  std::vector<int> bucket_;   // index: node
  std::vector<bool> packed_;  // index: bucket
  Rewriter r_;
  CopyOnDemand copy_;
};

// A position for each heavy node, after the positions of its operands. All members of a bucket get one position, after
// all their operands and before all their users. So further buckets cannot make a cycle.
class HeavyPositions {
 public:
  explicit HeavyPositions(const Dependencies& flow) : flow_(flow), at_(flow.live.size()), after_(flow.live.size()) {
    for (size_t id = 0; id < at_.size(); ++id) {
      at_[id] = static_cast<double>(id);
      if (!flow.light[id])
        for (int32_t from : flow.before[id]) after_[from].push_back(static_cast<int32_t>(id));
    }
  }
  double ready(int32_t id) const {
    double t = -1;
    for (int32_t from : flow_.before[id]) t = std::max(t, at_[from]);
    return t;
  }
  double use(int32_t id) const {
    auto t = static_cast<double>(at_.size());
    for (int32_t to : after_[id]) t = std::min(t, at_[to]);
    return t;
  }
  /// Gives these nodes one position between `ready` and `use`.
  void join(const std::vector<int32_t>& nodes, double ready, double use) {
    double first = use, last = -1;
    for (int32_t id : nodes) {
      first = std::min(first, at_[id]);
      last = std::max(last, at_[id]);
    }
    const double place = first > ready ? first : last < use ? last : (ready + use) / 2;
    for (int32_t id : nodes) at_[id] = place;
  }

 private:
  const Dependencies& flow_;
  std::vector<double> at_;
  std::vector<std::vector<int32_t>> after_;
};

}  // namespace

Buckets choose_buckets(const Graph& g, const Mesh& mesh, const Machine& machine, const BucketOptions& options) {
  const Dependencies flow(g);
  std::map<std::string, std::vector<int32_t>> alike;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (!flow.live[id] || !can_share(g, n) || collective_parts(mesh, n) < 2) continue;
    const NetworkLink link = link_of(mesh, n.attrs.get<std::string>("axes"), machine);
    // Packing and unpacking read and write each byte twice.
    const int64_t most = options.member_bytes > 0
                             ? options.member_bytes
                             : static_cast<int64_t>(link.latency * machine.bytes * machine.reached / 4);
    if (collective_bytes(g, n) <= most) alike[key_of(g, n)].push_back(id);
  }
  HeavyPositions positions(flow);
  Buckets buckets;
  for (auto& [key, nodes] : alike) {
    const NetworkLink link = link_of(mesh, g.node(nodes[0]).attrs.get<std::string>("axes"), machine);
    const int64_t most =
        options.bytes > 0 ? options.bytes : static_cast<int64_t>(8 * link.latency * link.bytes_per_second);
    std::stable_sort(nodes.begin(), nodes.end(), [&](int32_t a, int32_t b) {
      return std::pair(flow.ready[a], flow.use[a]) < std::pair(flow.ready[b], flow.use[b]);
    });
    std::vector<int32_t> bucket;
    int64_t bytes = 0;
    double ready = 0, use = 0;
    auto close = [&] {
      if (bucket.size() > 1) {
        positions.join(bucket, ready, use);
        buckets.push_back(bucket);
      }
      bucket.clear();
    };
    for (int32_t id : nodes) {
      const int64_t size = collective_bytes(g, g.node(id));
      bool needs = false;
      for (int32_t from : flow.before[id]) needs |= std::find(bucket.begin(), bucket.end(), from) != bucket.end();
      if (!bucket.empty() &&
          (needs || bytes + size > most || std::max(ready, positions.ready(id)) >= std::min(use, positions.use(id))))
        close();
      const bool first = bucket.empty();
      bucket.push_back(id);
      bytes = size + (first ? 0 : bytes);
      ready = first ? positions.ready(id) : std::max(ready, positions.ready(id));
      use = first ? positions.use(id) : std::min(use, positions.use(id));
    }
    close();
  }
  std::sort(buckets.begin(), buckets.end(), [](const auto& a, const auto& b) { return a[0] < b[0]; });
  return buckets;
}

Ref<Graph> apply_buckets(const Graph& g, const Buckets& buckets) {
  if (buckets.empty()) return nullptr;
  return BucketApplier(g, buckets).run();
}

}  // namespace weft::dist
