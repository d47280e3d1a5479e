#include "compiler/passes/fusion/fuse_partition.h"

#include <algorithm>
#include <queue>

#include "framework/ir/op_def.h"

namespace weft::fusion {
namespace {

constexpr const char* kCycle = "a node between them needs the first and is needed by the second";
constexpr const char* kSize = "the kernel would have too many operands or ops";
constexpr const char* kMemory = "it would keep operands alive longer and raise peak memory";

}  // namespace

Partition::Partition(const FusionGraph& g, const PartitionOptions& options) : g_(g), options_(options) {
  of_.assign(g.size(), -1);
  single_.assign(g.size(), -1);
  level_.assign(g.size(), SpaceLevel::kFull);
  value_stamp_.assign(g.num_values(), 0);
  groups_.reserve(2 * g.size());
  for (int32_t id = 0; id < g.size(); ++id) {
    if (!g.is_unit(id)) continue;
    of_[id] = single_[id] = size();
    Group x;
    x.nodes = {id};
    x.order = x.first = x.last = id;
    x.space.n = g.points(id);
    const Node& n = g.graph().node(id);
    switch (g.role(id)) {
      case Role::kProduct:
        x.product = id;
        break;
      case Role::kLibrary:
        x.library = true;
        break;
      case Role::kReduction: {
        if (!options.rows) x.library = true;
        const Spread s = reduced_spread(g.graph().type(n.inputs[0]).shape, n.attrs.ints("dims"));
        if (s.c == 1) {
          x.space.row = s.b;
          x.space.rows = true;
          level_[id] = SpaceLevel::kRow;
        } else if (s.a == 1) {
          x.space.column = s.c;
          level_[id] = SpaceLevel::kColumn;
        } else {
          x.space.k = s.b;
          x.space.l = s.c;
          level_[id] = SpaceLevel::kLane;
        }
        break;
      }
      default:
        break;
    }
    x.levels = {level_[id]};
    groups_.push_back(std::move(x));
  }
  group_stamp_.assign(2 * groups_.size() + 64, 0);
}

// ---- edges between groups ----

template <class F>
void Partition::each_successor(const Group& x, F f) const {
  for (int32_t id : x.nodes) {
    for (int32_t i : g_.readers(id)) f(of_[g_.read(i).node]);
    for (int32_t to : g_.after(id)) f(of_[to]);
  }
}

template <class F>
void Partition::each_predecessor(const Group& x, F f) const {
  for (int32_t id : x.nodes) {
    for (const Read& r : g_.reads(id))
      if (of_[r.value.node] >= 0) f(of_[r.value.node]);
    for (int32_t from : g_.before(id)) f(of_[from]);
  }
}

/// Collects the groups on paths from `from` (to it, if backward) that are between `from` and `to` in the order. True if
/// a path meets `to`; direct edges are ignored if skip_direct_to is `to`.
bool Partition::reaches(int32_t from, int32_t to, int32_t skip_direct_to, std::vector<int32_t>& seen, bool backward) {
  const int32_t lo = std::min(groups_[from].order, groups_[to].order),
                hi = std::max(groups_[from].order, groups_[to].order);
  const int32_t stamp = next_stamp();
  group_stamp_[from] = stamp;
  bool met = false;
  std::vector<int32_t> stack;
  auto visit = [&](int32_t x, bool direct) {
    if (x == to) {
      if (!direct || x != skip_direct_to) met = true;
      return;
    }
    if (group_stamp_[x] == stamp || groups_[x].order < lo || groups_[x].order > hi) return;
    group_stamp_[x] = stamp;
    seen.push_back(x);
    stack.push_back(x);
  };
  auto expand = [&](int32_t x, bool direct) {
    auto f = [&](int32_t y) { visit(y, direct); };
    if (backward) {
      each_predecessor(groups_[x], f);
    } else {
      each_successor(groups_[x], f);
    }
  };
  expand(from, true);
  while (!stack.empty() && !met) {
    const int32_t x = stack.back();
    stack.pop_back();
    expand(x, false);
  }
  return met;
}

bool Partition::no_cycle(int32_t a, int32_t b) {
  if (groups_[a].order > groups_[b].order) std::swap(a, b);
  std::vector<int32_t> seen;
  return !reaches(a, b, b, seen, false);
}

// ---- joining ----

int32_t Partition::join(int32_t producer, int32_t consumer, Fit fit) {
  Group x;
  const Group &p = groups_[producer], &c = groups_[consumer];
  auto lower = [&](const Group& y, SpaceLevel level) {
    for (int32_t id : y.nodes)
      if (level_[id] == SpaceLevel::kFull) level_[id] = level;
  };
  switch (fit) {
    case Fit::kEqual:
    case Fit::kAcross:
      combine(&x.space, p, c, fit == Fit::kAcross);
      for (const Group* y : {&p, &c})
        for (int32_t id : y->nodes)
          if (x.space.k && level_[id] == SpaceLevel::kColumn) level_[id] = SpaceLevel::kLane;
      break;
    case Fit::kConsumerRow:
    case Fit::kConsumerLane:
      x.space = p.space;
      lower(c, fit == Fit::kConsumerRow ? SpaceLevel::kRow : SpaceLevel::kLane);
      break;
    case Fit::kProducerRow:
      x.space = c.space;
      x.space.row = c.space.n / p.space.n;
      lower(p, SpaceLevel::kRow);
      break;
    case Fit::kProducerLane:
      x.space = c.space;
      lower(p, SpaceLevel::kLane);
      break;
    default:
      x.space = c.space;
      for (int32_t id : p.nodes) level_[id] = SpaceLevel::kMapped;
  }
  x.product = p.product >= 0 ? p.product : c.product;
  x.left = producer;
  x.right = consumer;
  x.nodes = p.nodes;
  x.nodes.insert(x.nodes.end(), c.nodes.begin(), c.nodes.end());
  std::sort(x.nodes.begin(), x.nodes.end());
  for (int32_t id : x.nodes) x.levels.push_back(level_[id]);
  x.first = std::min(p.first, c.first);
  x.last = std::max(p.last, c.last);

  // Topological order (Pearce and Kelly 2006): the places of all of them now hold, in this order, the groups that reach
  // the pair, the pair, and the groups that it reaches.
  int32_t early = producer, late = consumer;
  if (groups_[early].order > groups_[late].order) std::swap(early, late);
  std::vector<int32_t> below, above, places;
  reaches(early, late, late, below, false);
  reaches(late, early, early, above, true);
  auto by_order = [&](int32_t i, int32_t j) { return groups_[i].order < groups_[j].order; };
  std::sort(above.begin(), above.end(), by_order);
  std::sort(below.begin(), below.end(), by_order);
  places = {groups_[early].order, groups_[late].order};
  for (int32_t i : above) places.push_back(groups_[i].order);
  for (int32_t i : below) places.push_back(groups_[i].order);
  std::sort(places.begin(), places.end());
  size_t at = 0;
  for (int32_t i : above) groups_[i].order = places[at++];
  x.order = places[at];
  at = places.size() - below.size();
  for (int32_t i : below) groups_[i].order = places[at++];

  groups_[producer].gone = groups_[consumer].gone = true;
  const int32_t now = size();
  for (int32_t id : x.nodes) of_[id] = now;
  groups_.push_back(std::move(x));
  if (group_stamp_.size() <= groups_.size()) group_stamp_.resize(2 * groups_.size(), 0);
  return now;
}

void Partition::split(int32_t i) {
  if (groups_[i].nodes.size() == 1) {
    groups_[i].library = true;
    return;
  }
  groups_[i].gone = true;
  std::vector<int32_t> parts;
  if (groups_[i].left >= 0) {
    parts = {groups_[i].left, groups_[i].right};
  } else {
    for (int32_t id : groups_[i].nodes) parts.push_back(single_[id]);
  }
  for (int32_t part : parts) {
    Group& x = groups_[part];
    x.gone = false;
    for (size_t k = 0; k < x.nodes.size(); ++k) {
      of_[x.nodes[k]] = part;
      level_[x.nodes[k]] = x.levels[k];
    }
  }
}

int32_t Partition::cut(int32_t i, const std::vector<int32_t>& nodes) {
  const int32_t now = size();
  for (const bool taken : {true, false}) {
    Group x;
    x.space = groups_[i].space;
    for (size_t j = 0; j < groups_[i].nodes.size(); ++j) {
      const int32_t id = groups_[i].nodes[j];
      if (std::binary_search(nodes.begin(), nodes.end(), id) != taken) continue;
      x.nodes.push_back(id);
      x.levels.push_back(level_[id]);
      of_[id] = size();
    }
    if (taken) x.space = {.n = x.space.n};
    x.first = x.nodes.front();
    x.last = x.nodes.back();
    groups_.push_back(std::move(x));
  }
  groups_[i].gone = true;
  if (group_stamp_.size() <= groups_.size()) group_stamp_.resize(2 * groups_.size(), 0);
  renumber();
  return now;
}

/// Renumbers the topological order, by the groups' last nodes where there is a choice.
void Partition::renumber() {
  std::vector<int32_t> waits(groups_.size(), 0), ready;
  for (const Group& x : groups_)
    if (!x.gone) each_successor(x, [&](int32_t s) { waits[s] += &groups_[s] != &x; });
  auto later = [&](int32_t a, int32_t b) { return groups_[a].last > groups_[b].last; };
  for (int32_t i = 0; i < size(); ++i)
    if (!groups_[i].gone && waits[i] == 0) ready.push_back(i);
  std::make_heap(ready.begin(), ready.end(), later);
  int32_t order = 0;
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), later);
    const int32_t i = ready.back();
    ready.pop_back();
    groups_[i].order = order++;
    each_successor(groups_[i], [&](int32_t s) {
      if (s == i || --waits[s] > 0) return;
      ready.push_back(s);
      std::push_heap(ready.begin(), ready.end(), later);
    });
  }
}

/// Joins producers whose readers are all in one group. This always pays and never makes a cycle.
void Partition::absorb_single_uses() {
  for (int round = 0; round < 3; ++round) {
    bool any = false;
    for (int32_t id = g_.size() - 1; id >= 0; --id) {
      const int32_t p = of_[id];
      if (p < 0 || groups_[p].library || groups_[p].product >= 0 || groups_[p].last != id) continue;
      int32_t only = -1;
      each_successor(groups_[p], [&](int32_t s) {
        if (s != p) only = only == -1 || only == s ? s : -2;
      });
      if (only < 0) continue;
      bool pinned = false;
      for (int32_t k : groups_[p].nodes) pinned |= g_.pinned({k, 0});
      if (pinned && groups_[only].library) continue;
      const Match m = match(p, only);
      if (m.fit == Fit::kNone || !keeps_memory(p, only, false) || !small_enough(p, only)) continue;
      join(p, only, m.fit);
      any = true;
    }
    if (!any) break;
  }
}

void Partition::push_candidates(int32_t i, bool later_only, std::vector<MergeCandidate>& heap) {
  // A limit: a value with very many readers (a scalar of the optimiser) does not make all of them candidates.
  constexpr size_t kMaxReaders = 12;
  const Group& x = groups_[i];
  if (x.library || x.product >= 0) return;
  std::vector<std::pair<int32_t, bool>> others;  // group, sibling
  for (int32_t id : x.nodes) {
    for (const Read& r : g_.reads(id)) {
      const int32_t p = of_[r.value.node];
      if (p == i) continue;
      if (p >= 0) others.push_back({p, false});
      if (!options_.siblings || g_.readers(r.value.node).size() > kMaxReaders) continue;
      for (int32_t k : g_.readers(r.value.node))
        if (of_[g_.read(k).node] != i) others.push_back({of_[g_.read(k).node], true});
    }
    for (int32_t k : g_.readers(id))
      if (of_[g_.read(k).node] != i) others.push_back({of_[g_.read(k).node], false});
  }
  std::sort(others.begin(), others.end());
  int32_t last = -1;
  for (auto [other, sibling] : others) {
    if (other == last) continue;  // a value between the two sorts first and counts more than a shared operand
    last = other;
    if (groups_[other].library || groups_[other].product >= 0 || (later_only && other < i)) continue;
    int32_t a = i, b = other;
    if (groups_[a].order > groups_[b].order) std::swap(a, b);
    heap.push_back({saved(a, b), a, b, sibling});
    std::push_heap(heap.begin(), heap.end());
  }
}

bool Partition::try_join(const MergeCandidate& c) {
  int32_t a = c.a, b = c.b;
  if (groups_[a].order > groups_[b].order) std::swap(a, b);
  auto no = [&](const char* why) {
    refuse(a, b, why, c.bytes);
    return false;
  };
  const Match m = c.sibling ? siblings(a, b) : match(a, b);
  if (m.fit == Fit::kNone) return no(m.why);
  if (c.sibling) {
    // Shared reads must matter to at least one of the two.
    int64_t least = INT64_MAX;
    for (int32_t i : {a, b}) {
      int64_t bytes = 0;
      for (int32_t id : groups_[i].nodes)
        for (const Read& r : g_.reads(id))
          if (of_[r.value.node] != i) bytes += g_.bytes_read(r);
      least = std::min(least, bytes);
    }
    if (c.bytes * 8 < least) return false;
  }
  if (!keeps_memory(a, b, c.sibling)) return no(kMemory);
  if (!small_enough(a, b)) return no(kSize);
  std::vector<int32_t> seen;
  if (reaches(a, b, c.sibling ? -1 : b, seen, false)) return no(kCycle);
  join(a, b, m.fit);
  return true;
}

void Partition::join_all() {
  absorb_single_uses();
  std::vector<MergeCandidate> heap;
  for (int32_t i = 0, n = size(); i < n; ++i)
    if (!groups_[i].gone) push_candidates(i, true, heap);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const MergeCandidate c = heap.back();
    heap.pop_back();
    if (groups_[c.a].gone || groups_[c.b].gone || c.bytes <= 0) continue;
    if (try_join(c)) push_candidates(size() - 1, false, heap);
  }
}

}  // namespace weft::fusion
