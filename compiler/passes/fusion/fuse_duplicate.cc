#include "compiler/passes/fusion/fuse_duplicate.h"

#include <algorithm>

#include "compiler/loop_ir/prologue.h"
#include "framework/ir/op_def.h"
#include "ops/core/products/dot.h"

namespace weft::fusion {
namespace {

constexpr int64_t kLeastBytes = 4096;
constexpr size_t kMaxClones = 24;
constexpr double kMaxFlops = 100;
// Operations that a product may repeat per byte that is not kept. The scaling of a norm needs fewer in f32; a gelu, an
// exponential or a gated unit needs more.
constexpr double kFlopsPerByte = 1.5;
// A value of at most this size stays in the L2 cache until it is read, or is cheap to fetch. So almost nothing is
// cheaper than keeping it.
constexpr int64_t kNearBytes = 512 << 10;
constexpr double kFlopsPerNearByte = 0.2;
constexpr int32_t kNear = 2, kSoon = 6;
constexpr size_t kMaxNodes = 160, kMaxReads = 20;

bool contains(const std::vector<int32_t>& sorted, int32_t id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

}  // namespace

Flow::Flow(const Partition& p) : p_(p), reads_(p.size()), count_(p.graph().num_values(), 0) {
  for (int32_t i = 0; i < p.size(); ++i)
    if (!p.group(i).gone) update(i);
}

bool Flow::needed(Value v) const { return p_.graph().pinned(v) || count_[p_.graph().value_id(v)] > 0; }

void Flow::update(int32_t i) {
  const FusionGraph& g = p_.graph();
  for (Value v : reads_[i]) --count_[g.value_id(v)];
  reads_[i].clear();
  const Group& x = p_.group(i);
  auto add = [&](int32_t id) {
    for (const Read& r : g.reads(id))
      if (p_.of(r.value.node) != i && !contains(x.clones, r.value.node)) reads_[i].push_back(r.value);
  };
  for (int32_t id : x.nodes) add(id);
  for (int32_t id : x.clones) add(id);
  std::sort(reads_[i].begin(), reads_[i].end());
  reads_[i].erase(std::unique(reads_[i].begin(), reads_[i].end()), reads_[i].end());
  for (Value v : reads_[i]) ++count_[g.value_id(v)];
}

namespace {

/// The cost of recomputing a value in a group.
struct CloneChain {
  std::vector<int32_t> clones;  // sorted
  int64_t added = 0;            // bytes read for it, or written so that it can be read
  int64_t kept = 0;             // bytes that stay alive longer for it
  double flops = 0;
  bool possible = false;
};

class Duplicator {
 public:
  Duplicator(Partition& p, ComputedOperands operands) : p_(p), g_(p.graph()), flow_(p), operands_(operands) {}

  void run() {
    for (int32_t id = 0; id < g_.size(); ++id)
      if (g_.role(id) == Role::kPointwise && !g_.reads(id).empty() && g_.bytes({id, 0}) >= kLeastBytes &&
          !p_.group(p_.of(id)).library)
        consider(id);
  }

 private:
  bool reads(int32_t group, Value v) const {
    const auto& r = flow_.reads(group);
    return std::binary_search(r.begin(), r.end(), v);
  }

  void consider(int32_t id) {
    const Value v{id, 0};
    const int64_t size = g_.bytes(v);
    const int32_t own = p_.of(id);
    std::vector<int32_t> groups;
    for (int32_t i : g_.readers(id)) add_readers(g_.read(i).node, v, groups);
    for (int32_t i = 0; i < static_cast<int32_t>(cloned_in_.size()); ++i)
      if (reads(cloned_in_[i], v)) groups.push_back(cloned_in_[i]);
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    groups.erase(std::remove(groups.begin(), groups.end(), own), groups.end());
    // A product of 16-bit rows reads them in place and runs soon, so keeping the value does not slow it down. The value
    // is written for that product. Other readers recompute it only if it would have to be kept for them.
    const size_t readers = groups.size();
    if (is_16bit(g_.graph().type(v).dtype))
      std::erase_if(groups, [&](int32_t i) {
        return feeds_product(id, i) && g_.library_calls_before(runs_at(i)) - g_.library_calls_before(id) <= kSoon;
      });
    if (groups.empty()) return;
    const bool long_kept = groups.size() < readers && std::all_of(groups.begin(), groups.end(), [&](int32_t i) {
                             return g_.library_calls_before(runs_at(i)) - g_.library_calls_before(id) > kSoon;
                           });
    if (groups.size() < readers && !long_kept) return;

    const bool stays = is_dear(id, groups, g_.pinned(v) || groups.size() < readers);
    if (stays) std::erase_if(groups, [&](int32_t i) { return feeds_product(id, i); });
    bool all = !g_.pinned(v) && !stays;
    int64_t gain = size, kept = 0;
    std::vector<CloneChain> chains;
    for (int32_t group : groups) {
      CloneChain c;
      if (!p_.group(group).library && product_takes(id, group) && !chosen_from(id, group)) c = chain(id, group);
      all &= c.possible;
      gain += size - c.added;
      kept += c.kept;
      chains.push_back(std::move(c));
    }
    const bool together = all && gain * 4 >= size && kept <= size + size / 16;
    for (size_t i = 0; i < groups.size(); ++i) {
      const CloneChain& c = chains[i];
      if (!together && (!c.possible || c.kept > 0 || (size - c.added) * 4 < size)) continue;
      Group& x = p_.group(groups[i]);
      if (x.clones.empty()) cloned_in_.push_back(groups[i]);
      std::vector<int32_t> merged;
      std::set_union(x.clones.begin(), x.clones.end(), c.clones.begin(), c.clones.end(), std::back_inserter(merged));
      x.clones = std::move(merged);
      flow_.update(groups[i]);
    }
  }

  /// Would products spend more on computing it again than memory does on keeping it? If `written`, others need it.
  bool is_dear(int32_t id, const std::vector<int32_t>& groups, bool written) const {
    if (operands_ != ComputedOperands::kCheap) return false;
    double flops = 0, once = 0;
    for (int32_t group : groups) {
      if (!feeds_product(id, group)) continue;
      const CloneChain c = product_takes(id, group) ? chain(id, group) : CloneChain{};
      written |= !c.possible;
      if (!c.possible) continue;
      flops += c.flops;
      once = c.flops;
    }
    const int64_t size = g_.bytes({id, 0});
    return flops - (written ? 0 : once) >
           (size <= kNearBytes ? kFlopsPerNearByte : kFlopsPerByte) * static_cast<double>(size);
  }

  void add_readers(int32_t reader, Value v, std::vector<int32_t>& groups) const {
    if (const int32_t i = p_.of(reader); i >= 0 && reads(i, v)) groups.push_back(i);
  }

  bool feeds_product(int32_t id, int32_t group) const {
    const int32_t product = p_.group(group).product;
    if (product < 0 || g_.graph().node(product).op != &dot_op) return false;
    for (Value v : g_.graph().node(product).inputs)
      if (g_.root(v).node == id) return true;
    return false;
  }

  /// Whether a gather may be repeated to compute `id`. A product reads its operands in pieces, and for some of them
  /// more than once. The number of rows taken from a table depends on the data, so the gain would differ with the
  /// length.
  bool chosen_again(int32_t choice, int32_t id, int32_t group) const {
    const Graph& g = g_.graph();
    return !feeds_product(id, group) && g.type(g.node(choice).inputs[0]).shape.numel() == g_.points(choice);
  }

  /// Whether the group gathers elements of it. Each would be recomputed as often as it is gathered.
  bool chosen_from(int32_t id, int32_t group) const {
    const Group& x = p_.group(group);
    for (const auto* list : {&x.nodes, &x.clones})
      for (int32_t node : *list)
        for (const Read& r : g_.reads(node))
          if (r.gathered && r.value.node == id) return true;
    return false;
  }

  /// If the group's product reads the value: whether it can be computed while the product packs its operands.
  bool product_takes(int32_t id, int32_t group) const {
    const int32_t product = p_.group(group).product;
    if (product < 0) return true;
    const Graph& g = g_.graph();
    const Node& n = g.node(product);
    for (int i = 0; i < static_cast<int>(n.inputs.size()); ++i)
      if (g_.root(n.inputs[i]).node == id &&
          (operands_ == ComputedOperands::kNone || n.op != &dot_op ||
           !loop_ir::cannot_fill(n, g.type(n.inputs[0]), g.type(n.inputs[1]), i).empty()))
        return false;
    return true;
  }

  /// Tries to stop at values that are in memory anyway, then to continue to their operands.
  CloneChain chain(int32_t id, int32_t group) const {
    const CloneChain shallow = expand(id, group, true), deep = expand(id, group, false);
    if (!deep.possible) return shallow;
    if (!shallow.possible || deep.added < shallow.added) return deep;
    return shallow;
  }

  CloneChain expand(int32_t id, int32_t group, bool stop) const {
    const Group& x = p_.group(group);
    const int64_t size = g_.bytes({id, 0});
    CloneChain c;
    std::vector<Value> leaves;
    double flops = 0;  // per point
    c.clones.push_back(id);
    for (size_t i = 0; i < c.clones.size(); ++i) {
      const int32_t at = c.clones[i];
      const double each = g_.graph().node(at).op->flops_per_point;
      flops += each;
      c.flops += each * static_cast<double>(g_.points(at));
      if (c.clones.size() > kMaxClones || flops > kMaxFlops) return c;
      if (at == id && g_.chooses(id) && !chosen_again(id, id, group)) return c;
      for (const Read& r : g_.reads(at)) {
        const Value w = r.value;
        if (p_.of(w.node) == group || contains(x.clones, w.node) || reads(group, w)) continue;
        if (std::find(c.clones.begin(), c.clones.end(), w.node) != c.clones.end()) continue;
        if (std::find(leaves.begin(), leaves.end(), w) != leaves.end()) continue;
        const bool small = g_.bytes(w) * 16 <= size;
        const bool stays = r.gathered || (g_.chooses(w.node) && !chosen_again(w.node, id, group));
        if (g_.role(w.node) == Role::kPointwise && !stays && !(flow_.needed(w) && (stop || small))) {
          if (p_.group(p_.of(w.node)).library) return c;
          c.clones.push_back(w.node);
          continue;
        }
        leaves.push_back(w);
      }
    }
    const int32_t now = g_.library_calls_before(runs_at(group));
    for (Value w : leaves) {
      if (overwritten(w, group)) return c;
      c.added += g_.bytes(w) * (g_.is_unit(w.node) && !flow_.needed(w) ? 2 : 1);
      if (g_.is_unit(w.node) && dies_before(w, now, group)) c.kept += g_.bytes(w);
    }
    if (x.nodes.size() + x.clones.size() + c.clones.size() > kMaxNodes) return c;
    if (flow_.reads(group).size() + leaves.size() > kMaxReads) return c;
    std::sort(c.clones.begin(), c.clones.end());
    c.possible = true;
    return c;
  }

  /// The node at whose place the group runs.
  int32_t runs_at(int32_t group) const {
    const Group& x = p_.group(group);
    return x.product >= 0 ? x.product : x.last;
  }

  /// Whether w is the old value of a cell whose new value is computed before the group runs.
  bool overwritten(Value w, int32_t group) const {
    const Graph& g = g_.graph();
    if (!is_cell(g.node(w))) return false;
    for (const CellWrite& write : g.writes) {
      if (write.cell != g.node(w).attrs.i("index")) continue;
      const int32_t writer = p_.of(g_.root(write.value).node);
      if (writer >= 0 && runs_at(writer) <= runs_at(group)) return true;
    }
    return false;
  }

  bool dies_before(Value w, int32_t library_calls, int32_t group) const {
    if (g_.pinned(w)) return false;
    for (int32_t i : g_.readers(w.node)) {
      const Read& r = g_.read(i);
      if (r.value == w && p_.of(r.node) != group && g_.library_calls_before(r.node) + kNear >= library_calls)
        return false;
    }
    return true;
  }

  Partition& p_;
  const FusionGraph& g_;
  Flow flow_;
  ComputedOperands operands_;
  std::vector<int32_t> cloned_in_;
};

}  // namespace

void duplicate_cheap(Partition& p, ComputedOperands operands) { Duplicator(p, operands).run(); }

}  // namespace weft::fusion
