#include "compiler/passes/fusion/fuse_epilogue.h"

#include <algorithm>
#include <unordered_set>

#include "compiler/loop_ir/lower_group.h"
#include "framework/ir/op_def.h"

namespace weft::fusion {
namespace {

constexpr int64_t kLeastColumns = 8;
constexpr int32_t kNear = 2;
constexpr double kLight = 8;  // operations per element

/// Part of a group that a product could compute.
struct EpilogueChoice {
  int64_t gain = 0;
  int32_t group = -1;
  std::vector<int32_t> nodes;  // sorted
};

class Epilogues {
 public:
  explicit Epilogues(Partition& p) : p_(p), g_(p.graph()) {}

  void run() {
    std::vector<std::pair<int64_t, int32_t>> products;  // sorted by gain, later ones first
    for (int32_t id = 0; id < g_.size(); ++id)
      if (g_.role(id) == Role::kProduct && takes_epilogue(id))
        if (const int64_t gain = best(id).gain; gain > 0) products.push_back({-gain, -id});
    std::sort(products.begin(), products.end());
    for (const auto& [gain, id] : products) apply(-id);
  }

 private:
  int64_t columns(int32_t d) const { return loop_ir::row_elements(g_.graph(), g_.graph().node(d)); }
  bool takes_epilogue(int32_t d) const {
    const DType t = g_.graph().node(d).outputs[0].dtype;
    return (t == kFloat32 || t == kBFloat16 || t == kFloat16) && columns(d) >= kLeastColumns;
  }

  bool needed_outside(Value v, int32_t a, int32_t b) const {
    if (g_.pinned(v)) return true;
    for (int32_t i : g_.readers(v.node)) {
      const int32_t reader = p_.of(g_.read(i).node);
      if (reader != a && reader != b) return true;
    }
    return false;
  }

  EpilogueChoice best(int32_t d) const {
    EpilogueChoice plan;
    std::vector<int32_t> groups;
    for (int32_t i : g_.readers(d)) groups.push_back(p_.of(g_.read(i).node));
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    for (int32_t group : groups) {
      if (p_.group(group).library || p_.group(group).product >= 0) continue;
      consider(d, group, plan);
    }
    return plan;
  }

  void consider(int32_t d, int32_t group, EpilogueChoice& plan) const {
    const Group& x = p_.group(group);
    const int64_t points = g_.points(d);
    auto offer = [&](std::vector<int32_t> nodes) {
      if (too_much(d, nodes)) return;
      const int64_t gain = this->gain(d, group, nodes);
      if (gain > plan.gain) plan = {gain, group, std::move(nodes)};
    };
    // A copy into another order of elements: the product can store its tile in that order.
    if (x.nodes.size() == 1 && g_.role(x.nodes[0]) == Role::kPointwise && g_.reads(x.nodes[0]).size() == 1) {
      const Read& r = g_.reads(x.nodes[0])[0];
      if (!r.map.regular && !r.gathered && r.whole && g_.points(x.nodes[0]) == points) return offer(x.nodes);
    }
    if (x.space.n != points) return;
    // `eligible`: nodes that need no reduction of the group. `from_d`: eligible nodes that depend on the product.
    std::unordered_set<int32_t> eligible, from_d;
    std::vector<int32_t> ends;
    for (int32_t id : x.nodes) {
      if (g_.role(id) != Role::kPointwise) continue;
      if (p_.level(id) == SpaceLevel::kLane || (p_.level(id) == SpaceLevel::kRow && x.space.row != columns(d)))
        continue;
      bool ok = true, reads = false;
      for (const Read& r : g_.reads(id)) {
        if (r.value.node == d) {
          ok &= r.map.linear() && p_.level(id) == SpaceLevel::kFull;
          reads = true;
        } else if (p_.of(r.value.node) == group) {
          ok &= eligible.contains(r.value.node) && !(r.gathered && from_d.contains(r.value.node));
          reads |= from_d.contains(r.value.node);
        }
      }
      if (!ok) continue;
      eligible.insert(id);
      if (!reads) continue;
      from_d.insert(id);
      if (p_.level(id) == SpaceLevel::kFull) ends.push_back(id);
    }
    if (ends.empty()) return;
    if (eligible.size() == x.nodes.size()) offer(x.nodes);
    for (int32_t end : ends) offer(ancestors(end, group));
    if (ends.size() > 1) {
      std::vector<int32_t> all;
      for (int32_t end : ends) {
        const std::vector<int32_t> more = ancestors(end, group);
        all.insert(all.end(), more.begin(), more.end());
      }
      std::sort(all.begin(), all.end());
      all.erase(std::unique(all.begin(), all.end()), all.end());
      offer(std::move(all));
    }
  }

  /// Matrix units for 16-bit numbers lower the clock of the code between their tiles: heavy arithmetic there costs more
  /// than the memory traffic it saves.
  bool too_much(int32_t d, const std::vector<int32_t>& nodes) const {
    if (!is_16bit(g_.graph().type(g_.graph().node(d).inputs[0]).dtype)) return false;
    double flops = 0;
    for (int32_t id : nodes)
      if (p_.level(id) == SpaceLevel::kFull) flops += g_.graph().node(id).op->flops_per_point;
    return flops > kLight;
  }

  std::vector<int32_t> ancestors(int32_t end, int32_t group) const {
    std::vector<int32_t> found{end};
    for (size_t i = 0; i < found.size(); ++i)
      for (const Read& r : g_.reads(found[i]))
        if (p_.of(r.value.node) == group && std::find(found.begin(), found.end(), r.value.node) == found.end())
          found.push_back(r.value.node);
    std::sort(found.begin(), found.end());
    return found;
  }

  /// Bytes saved if the product computes `nodes` of `group`; negative if that is not possible.
  int64_t gain(int32_t d, int32_t group, const std::vector<int32_t>& nodes) const {
    const Group& x = p_.group(group);
    auto inside = [&](int32_t id) { return std::binary_search(nodes.begin(), nodes.end(), id); };
    std::unordered_set<int32_t> all, epilogue, rest, crossing;
    int64_t bytes = 0;
    bool rest_reads_d = false;
    for (int32_t id : x.nodes) {
      const bool in = inside(id);
      for (const Read& r : g_.reads(id)) {
        const int32_t v = g_.value_id(r.value);
        const int64_t size = g_.bytes_read(r);
        if (p_.of(r.value.node) == group) {
          if (in || !inside(r.value.node)) continue;
          if (p_.level(r.value.node) == SpaceLevel::kMapped) return -1;
          if (crossing.insert(v).second) bytes -= needed_outside(r.value, group, group) ? size : 2 * size;
          continue;
        }
        if (all.insert(v).second) bytes += size;
        if (r.value.node == d) {
          if (!in && rest.insert(v).second) bytes -= size;
          rest_reads_d |= !in;
        } else if ((in ? epilogue : rest).insert(v).second) {
          bytes -= size;
        }
      }
    }
    if (!rest_reads_d && !needed_outside({d, 0}, p_.of(d), group)) bytes += g_.bytes({d, 0});
    return bytes;
  }

  /// The kernel runs at the product's place, so its results must not stay in memory long before they are read.
  bool keeps_memory(int32_t d, const std::vector<int32_t>& nodes, int32_t group) const {
    if (g_.library_calls_before(nodes.back()) - g_.library_calls_before(d) <= kNear) return true;
    int64_t more = needed_outside({d, 0}, p_.of(d), group) ? 0 : -g_.bytes({d, 0});
    for (int32_t id : nodes)
      if (!g_.written(id) && needed_outside({id, 0}, group, group)) more += g_.bytes({id, 0});
    return more <= 0;
  }

  void apply(int32_t d) {
    const EpilogueChoice plan = best(d);
    if (plan.gain <= 0) return;
    const int32_t product = p_.of(d);
    int32_t group = plan.group;
    if (!keeps_memory(d, plan.nodes, group)) {
      p_.refuse(product, group, "it would keep results alive longer and raise peak memory", plan.gain);
      return;
    }
    const bool whole = plan.nodes.size() == p_.group(group).nodes.size();
    if (!whole && needs_itself(d, plan.nodes, group)) return;
    if (!whole) group = p_.cut(group, plan.nodes);
    if (!p_.small_enough(product, group) || !p_.no_cycle(product, group)) {
      p_.refuse(product, group, "a node between them needs the product and is needed by its epilogue", plan.gain);
      return;
    }
    p_.join(product, group, Fit::kEqual);
  }

  /// Whether the part needs a value that other groups compute from the product. The cut would then be useless.
  bool needs_itself(int32_t d, const std::vector<int32_t>& nodes, int32_t group) const {
    std::vector<int32_t> stack(nodes.begin(), nodes.end());
    std::unordered_set<int32_t> seen(nodes.begin(), nodes.end());
    while (!stack.empty()) {
      const int32_t id = stack.back();
      stack.pop_back();
      auto visit = [&](int32_t from) {
        if (from <= d || p_.of(from) < 0 || !seen.insert(from).second) return false;
        bool reads = false;
        for (const Read& r : g_.reads(from)) reads |= r.value.node == d;
        if (reads) return true;
        stack.push_back(from);
        return false;
      };
      for (const Read& r : g_.reads(id)) {
        if (r.value.node == d || p_.of(r.value.node) < 0) continue;
        for (int32_t member : p_.group(p_.of(r.value.node)).nodes)
          if (p_.of(member) != group && visit(member)) return true;
      }
    }
    return false;
  }

  Partition& p_;
  const FusionGraph& g_;
};

}  // namespace

void join_epilogues(Partition& p) { Epilogues(p).run(); }

}  // namespace weft::fusion
