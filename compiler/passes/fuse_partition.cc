#include "compiler/passes/fuse_partition.h"

#include <algorithm>
#include <queue>

#include "framework/ir/op_def.h"

namespace weft::fusion {
namespace {

// Joins across more library calls than this must not keep memory alive.
constexpr int32_t kNear = 2;
constexpr int64_t kSmallBytes = 65536;
// As in compiler/kir/schedule.cc: few long rows are reduced in pieces, so that nothing can follow in the kernel.
constexpr int64_t kLongRow = 32768, kFewRows = 4, kMaxColumns = 16384;
constexpr double kCheapFlops = 6;

constexpr const char* kProductOperand = "it feeds an operand of the product";
constexpr const char* kTwoProducts = "both are products";
constexpr const char* kTile = "a reduction needs more than one tile of the product";
constexpr const char* kPoints = "they iterate over different points";
constexpr const char* kAxes = "they reduce different axes";
constexpr const char* kColumnUsed = "a sum over the rows is finished only after the kernel";
constexpr const char* kLong = "the rows are few and long: what follows the sum waits for all of it";
constexpr const char* kRowIndex = "a value of a row is read at other points than those of the row";
constexpr const char* kMappedResult = "it is read at another index and needed elsewhere too";
constexpr const char* kMappedCost = "it would be computed again for each point that reads it";
constexpr const char* kScalar = "it is one number for all points";
constexpr const char* kLibrary = "an op has no generated code";
constexpr const char* kOff = "that part of fusion is switched off";
constexpr const char* kCycle = "a node between them needs the first and is needed by the second";
constexpr const char* kSize = "the kernel would have too many operands or ops";
constexpr const char* kMemory = "it would keep operands alive longer and raise peak memory";
constexpr const char* kColumns = "a sum over rows beside other rows must leave their columns";

}  // namespace

Partition::Partition(const FusionGraph& g, const PartitionOptions& options) : g_(g), options_(options) {
  of_.assign(g.size(), -1);
  single_.assign(g.size(), -1);
  level_.assign(g.size(), Level::kFull);
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
          level_[id] = Level::kRow;
        } else if (s.a == 1) {
          x.space.column = s.c;
          level_[id] = Level::kColumn;
        } else {
          x.space.k = s.b;
          x.space.l = s.c;
          level_[id] = Level::kLane;
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

/// Groups between the orders of `from` and `to` on paths from `from` (or to it, if backward); true if `to` is met on
/// one, direct edges left out if skip_direct_to is `to`.
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

// ---- do two groups iterate over the same points? ----

Match Partition::match(int32_t producer, int32_t consumer) const {
  const Group &p = groups_[producer], &c = groups_[consumer];
  if (p.library || c.library) return {Fit::kNone, kLibrary};
  Fit fit = Fit::kNone;
  bool mapped_pays = true;
  for (int32_t id : c.nodes) {
    for (const Read& r : g_.reads(id)) {
      if (of_[r.value.node] != producer) continue;
      const Level from = level_[r.value.node];
      const Level to = g_.role(id) == Role::kReduction ? Level::kFull : level_[id];
      const Spread& m = r.map;
      if (g_.role(id) == Role::kProduct) return {Fit::kNone, kProductOperand};
      Fit now = Fit::kNone;
      if (from == Level::kColumn) {
        const bool back = m.regular && m.a == 1 && m.c == p.space.column && m.b * m.c == p.space.n;
        if (!back || to != Level::kFull || p.space.row) return {Fit::kNone, kColumnUsed};
        if (fit == Fit::kEqual) fit = Fit::kAcross;
        now = Fit::kAcross;
      } else if (to == Level::kMapped || from == Level::kMapped) {
        now = Fit::kMapped;
      } else if (from == Level::kFull) {
        const bool scalar = p.space.n == 1 && g_.points(id) > 1;
        if (scalar) return {Fit::kNone, kScalar};
        if (m.linear()) {
          now = to == Level::kFull ? Fit::kEqual : to == Level::kRow ? Fit::kProducerRow : Fit::kProducerLane;
        } else if (m.regular && m.c == 1 && to == Level::kFull && (c.space.row == 0 || c.space.row == m.b) &&
                   c.space.k == 0) {
          now = Fit::kProducerRow;
        } else if (m.regular && to == Level::kFull && c.space.k == m.b && c.space.l == m.c) {
          now = Fit::kProducerLane;
        } else {
          now = Fit::kMapped;
        }
      } else if (from == Level::kRow) {
        if (m.linear()) {
          now = to == Level::kRow ? Fit::kEqual : to == Level::kFull ? Fit::kConsumerRow : Fit::kNone;
        } else if (m.regular && m.c == 1 && m.b == p.space.row && to == Level::kFull) {
          now = Fit::kEqual;
        }
        if (now == Fit::kNone) return {Fit::kNone, kRowIndex};
      } else {
        if (m.linear()) {
          now = to == Level::kLane ? Fit::kEqual : to == Level::kFull ? Fit::kConsumerLane : Fit::kNone;
        } else if (m.regular && m.b == p.space.k && m.c == p.space.l && to == Level::kFull) {
          now = Fit::kEqual;
        }
        if (now == Fit::kNone) return {Fit::kNone, kRowIndex};
      }
      if (fit == Fit::kAcross && now == Fit::kEqual) now = fit;
      if (fit != Fit::kNone && fit != now) return {Fit::kNone, kPoints};
      fit = now;
      if (now == Fit::kMapped) {
        const int64_t points = to == Level::kRow ? c.space.n / std::max<int64_t>(1, c.space.row) : g_.points(id);
        mapped_pays &= points <= 4 * p.space.n;
      }
    }
  }
  if (fit == Fit::kNone) return {Fit::kNone, "they share no data"};

  const bool p_plain = p.space.plain() && p.product < 0, c_plain = c.space.plain() && c.product < 0;
  switch (fit) {
    case Fit::kEqual:
    case Fit::kAcross: {
      Space s;
      if (Match m = combine(&s, p, c, fit == Fit::kAcross); m.fit == Fit::kNone) return m;
      break;
    }
    case Fit::kConsumerRow:
      if (!c_plain || c.space.n * p.space.row != p.space.n) return {Fit::kNone, kPoints};
      if (p.space.n / p.space.row < kFewRows && p.space.row > kLongRow) return {Fit::kNone, kLong};
      break;
    case Fit::kProducerRow: {
      if (!p_plain || p.space.n == 0 || c.space.n % p.space.n || c.space.k) return {Fit::kNone, kPoints};
      const int64_t row = c.space.n / p.space.n;
      if (c.space.row && c.space.row != row) return {Fit::kNone, kPoints};
      if (c.space.column && c.space.column != row) return {Fit::kNone, kColumns};
      break;
    }
    case Fit::kConsumerLane:
      if (!c_plain || c.space.n * p.space.k != p.space.n) return {Fit::kNone, kPoints};
      break;
    case Fit::kProducerLane:
      if (!p_plain || c.space.k == 0 || p.space.n * c.space.k != c.space.n) return {Fit::kNone, kPoints};
      break;
    case Fit::kMapped: {
      if (!p_plain) return {Fit::kNone, kRowIndex};
      double flops = 0;
      for (int32_t id : p.nodes) {
        flops += g_.graph().node(id).op->flops_per_point;
        if (g_.pinned({id, 0})) return {Fit::kNone, kMappedResult};
        for (int32_t i : g_.readers(id)) {
          const int32_t reader = of_[g_.read(i).node];
          if (reader != producer && reader != consumer) return {Fit::kNone, kMappedResult};
        }
      }
      bool reads = false;
      for (int32_t id : p.nodes) reads |= !g_.reads(id).empty();
      if (!mapped_pays && (flops > kCheapFlops || !reads)) return {Fit::kNone, kMappedCost};
      if (c.product >= 0) return {Fit::kNone, kPoints};
      break;
    }
    case Fit::kNone:
      break;
  }
  return {fit, ""};
}

/// The space of both, if all of one group's points are the other's.
Match Partition::combine(Space* out, const Group& a, const Group& b, bool across) const {
  if (a.library || b.library) return {Fit::kNone, kLibrary};
  Space s = a.space, t = b.space;
  // Sums over all rows, next to others that are taken across or if they must be.
  auto turn = [&](Space& x, const Space& beside) {
    if (!x.column || x.row || x.k || !(across || (beside.k * beside.l == x.n && beside.l == x.column))) return;
    x.k = x.n / x.column;
    x.l = x.column;
    x.column = 0;
  };
  turn(s, t);
  turn(t, s);
  if (s.n != t.n) return {Fit::kNone, kPoints};
  if (a.product >= 0 && b.product >= 0) return {Fit::kNone, kTwoProducts};
  if (s.row && t.row && s.row != t.row) return {Fit::kNone, s.rows && t.rows ? kAxes : kPoints};
  if (s.k && t.k && (s.k != t.k || s.l != t.l)) return {Fit::kNone, kAxes};
  if (s.column && t.column && s.column != t.column) return {Fit::kNone, kAxes};
  if (t.row) s.row = t.row;
  if (t.k) {
    s.k = t.k;
    s.l = t.l;
  }
  if (t.column) s.column = t.column;
  s.rows |= t.rows;
  if (s.k && (s.row || s.column)) return {Fit::kNone, kAxes};
  if (s.row && s.column && s.row != s.column) return {Fit::kNone, kColumns};
  if (s.rows && s.column && s.column > kMaxColumns) return {Fit::kNone, kColumns};
  if ((a.product >= 0 || b.product >= 0) && (s.rows || s.k || s.column)) return {Fit::kNone, kTile};
  if (s.rows && s.n / s.row < kFewRows && s.row > kLongRow) {
    // Only what is summed may be in it.
    for (const Group* x : {&a, &b})
      for (int32_t id : x->nodes) {
        if (level_[id] == Level::kRow && g_.role(id) != Role::kReduction) return {Fit::kNone, kLong};
        if (level_[id] != Level::kFull) continue;
        if (g_.pinned({id, 0})) return {Fit::kNone, kLong};
        for (int32_t i : g_.readers(id)) {
          const int32_t reader = of_[g_.read(i).node];
          if (&groups_[reader] != &a && &groups_[reader] != &b) return {Fit::kNone, kLong};
        }
      }
    // A row's sum used in the group?
    for (const Group* x : {&a, &b})
      for (int32_t id : x->nodes)
        for (const Read& r : g_.reads(id))
          if (int32_t y = of_[r.value.node];
              y >= 0 && (&groups_[y] == &a || &groups_[y] == &b) && level_[r.value.node] == Level::kRow)
            return {Fit::kNone, kLong};
  }
  *out = s;
  return {Fit::kEqual, ""};
}

Match Partition::siblings(int32_t a, int32_t b) const {
  Space s;
  if (groups_[a].product >= 0 || groups_[b].product >= 0) return {Fit::kNone, kTwoProducts};
  return combine(&s, groups_[a], groups_[b]);
}

// ---- what a join saves and what it needs ----

int64_t Partition::saved(int32_t a, int32_t b) {
  int64_t bytes = 0;
  const int32_t outside = next_stamp();
  for (int32_t id : groups_[a].nodes)
    for (const Read& r : g_.reads(id))
      if (of_[r.value.node] != a) value_stamp_[g_.value_id(r.value)] = outside;
  const int32_t counted = next_stamp();
  auto inner = [&](int32_t from, int32_t to) {
    for (int32_t id : groups_[to].nodes)
      for (const Read& r : g_.reads(id)) {
        if (of_[r.value.node] != from) continue;
        int32_t& stamp = value_stamp_[g_.value_id(r.value)];
        if (stamp == counted) continue;
        stamp = counted;
        bytes += g_.bytes(r.value);
        bool needed = g_.pinned(r.value);
        for (int32_t i : g_.readers(r.value.node)) {
          const int32_t reader = of_[g_.read(i).node];
          needed |= reader != a && reader != b;
        }
        if (!needed) bytes += g_.bytes(r.value);
      }
  };
  inner(a, b);
  inner(b, a);
  for (int32_t id : groups_[b].nodes)
    for (const Read& r : g_.reads(id)) {
      int32_t& stamp = value_stamp_[g_.value_id(r.value)];
      if (stamp != outside || of_[r.value.node] == b) continue;
      stamp = counted;
      bytes += g_.bytes(r.value);
    }
  return bytes;
}

bool Partition::small_enough(int32_t a, int32_t b) {
  if (groups_[a].nodes.size() + groups_[b].nodes.size() > static_cast<size_t>(options_.max_nodes)) return false;
  const int32_t stamp = next_stamp();
  int count = 0;
  for (const Group* x : {&groups_[a], &groups_[b]})
    for (int32_t id : x->nodes) {
      bool out = g_.pinned({id, 0});
      for (int32_t i : g_.readers(id)) {
        const int32_t reader = of_[g_.read(i).node];
        out |= reader != a && reader != b;
      }
      count += out;
      for (const Read& r : g_.reads(id)) {
        const int32_t from = of_[r.value.node];
        int32_t& seen = value_stamp_[g_.value_id(r.value)];
        if (from == a || from == b || seen == stamp) continue;
        seen = stamp;
        ++count;
      }
    }
  return count <= options_.max_operands;
}

bool Partition::keeps_memory(int32_t a, int32_t b, bool sibling) const {
  const Group &p = groups_[a], &c = groups_[b];
  const int32_t then = g_.era(p.last), now = g_.era(c.last);
  if (std::abs(now - then) <= kNear) return true;
  if (sibling) return false;
  int64_t more = 0;
  for (int32_t id : p.nodes)
    for (const Read& r : g_.reads(id)) {
      if (of_[r.value.node] < 0 || of_[r.value.node] == a) continue;
      bool dies = !g_.pinned(r.value);
      for (int32_t i : g_.readers(r.value.node)) {
        const Read& x = g_.read(i);
        if (x.value == r.value && of_[x.node] != a) dies &= g_.era(x.node) < now;
      }
      if (dies) more += g_.bytes(r.value);
    }
  for (int32_t id : p.nodes) {
    bool only = !g_.pinned({id, 0}), read = false;
    for (int32_t i : g_.readers(id)) {
      const int32_t reader = of_[g_.read(i).node];
      only &= reader == a || reader == b;
      read |= reader == b;
    }
    if (only && read) more -= g_.bytes({id, 0});
  }
  return more <= kSmallBytes;
}

// ---- joining ----

int32_t Partition::join(int32_t producer, int32_t consumer, Fit fit) {
  Group x;
  const Group &p = groups_[producer], &c = groups_[consumer];
  auto lower = [&](const Group& y, Level level) {
    for (int32_t id : y.nodes)
      if (level_[id] == Level::kFull) level_[id] = level;
  };
  switch (fit) {
    case Fit::kEqual:
    case Fit::kAcross:
      combine(&x.space, p, c, fit == Fit::kAcross);
      for (const Group* y : {&p, &c})
        for (int32_t id : y->nodes)
          if (x.space.k && level_[id] == Level::kColumn) level_[id] = Level::kLane;
      break;
    case Fit::kConsumerRow:
      x.space = p.space;
      lower(c, Level::kRow);
      break;
    case Fit::kProducerRow:
      x.space = c.space;
      x.space.row = c.space.n / p.space.n;
      lower(p, Level::kRow);
      break;
    case Fit::kConsumerLane:
      x.space = p.space;
      lower(c, Level::kLane);
      break;
    case Fit::kProducerLane:
      x.space = c.space;
      lower(p, Level::kLane);
      break;
    default:
      x.space = c.space;
      for (int32_t id : p.nodes) level_[id] = Level::kMapped;
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

  // Topological order (Pearce and Kelly 2006): what reaches the pair, the pair, what it reaches, in the places of all.
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

/// Topological orders anew, by their last nodes where there is a choice.
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

/// Producers whose every reader is in one group: always worth it, never a cycle.
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

void Partition::push_candidates(int32_t i, bool later_only, std::vector<Candidate>& heap) {
  // A cap: what is read by very many (a scalar of the optimiser) is no reason to look at them all.
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
    if (other == last) continue;  // a value between them (first in order) counts more than a shared one
    last = other;
    if (groups_[other].library || groups_[other].product >= 0 || (later_only && other < i)) continue;
    int32_t a = i, b = other;
    if (groups_[a].order > groups_[b].order) std::swap(a, b);
    heap.push_back({saved(a, b), a, b, sibling});
    std::push_heap(heap.begin(), heap.end());
  }
}

bool Partition::try_join(const Candidate& c) {
  int32_t a = c.a, b = c.b;
  if (groups_[a].order > groups_[b].order) std::swap(a, b);
  auto no = [&](const char* why) {
    refuse(a, b, why, c.bytes);
    return false;
  };
  const Match m = c.sibling ? siblings(a, b) : match(a, b);
  if (m.fit == Fit::kNone) return no(m.why);
  if (c.sibling) {
    // Sharing must matter to one of them.
    int64_t least = INT64_MAX;
    for (int32_t i : {a, b}) {
      int64_t bytes = 0;
      for (int32_t id : groups_[i].nodes)
        for (const Read& r : g_.reads(id))
          if (of_[r.value.node] != i) bytes += g_.bytes(r.value);
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
  std::vector<Candidate> heap;
  for (int32_t i = 0, n = size(); i < n; ++i)
    if (!groups_[i].gone) push_candidates(i, true, heap);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate c = heap.back();
    heap.pop_back();
    if (groups_[c.a].gone || groups_[c.b].gone || c.bytes <= 0) continue;
    if (try_join(c)) push_candidates(size() - 1, false, heap);
  }
}

}  // namespace weft::fusion
