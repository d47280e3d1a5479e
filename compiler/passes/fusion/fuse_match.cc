// Whether two groups can be one launch: their spaces, the bytes saved, and the memory kept alive.
#include <algorithm>
#include <cmath>

#include "compiler/passes/fusion/fuse_partition.h"
#include "framework/ir/op_def.h"
#include "ops/core/creation.h"

namespace weft::fusion {
namespace {

// Joins across more library calls than this must not keep memory alive.
constexpr int32_t kNear = 2;
constexpr int64_t kSmallBytes = 65536;
// As in compiler/loop_ir/schedule.cc: a few long rows are reduced in pieces, so nothing can follow in the same kernel.
constexpr int64_t kLongRow = 32768, kFewRows = 4, kMaxColumns = 16384;
constexpr double kCheapFlops = 6;
constexpr double kChoice = 8;  // cost of the choice of an element at its own position, in operations
constexpr const char* kProductOperand = "it feeds an operand of the product";
constexpr const char* kTwoProducts = "both are products";
constexpr const char* kTile = "a reduction needs more than one tile of the product";
constexpr const char* kPoints = "they iterate over different points";
constexpr const char* kAxes = "they reduce different axes";
constexpr const char* kColumnUsed = "a sum over the rows is finished only after the kernel";
constexpr const char* kLong = "the rows are few and long: the ops after the sum wait for the whole sum";
constexpr const char* kRowIndex = "a per-row value is read at points outside its row";
constexpr const char* kMappedResult = "it is read at another index and needed elsewhere too";
constexpr const char* kMappedCost = "it would be recomputed for each point that reads it";
constexpr const char* kCarried =
    "elements are gathered along a dim that an earlier reshape, slice or gather has changed";
constexpr const char* kAgain = "one is recomputed so that it need not be kept after the other";
constexpr const char* kScalar = "it is a single number for all points";
constexpr const char* kLibrary = "an op has no generated code";
constexpr const char* kColumns = "a sum over rows beside row reductions must keep their columns";

}  // namespace

// ---- do two groups iterate over the same points? ----

Match Partition::match(int32_t producer, int32_t consumer) const {
  const Group &p = groups_[producer], &c = groups_[consumer];
  if (p.library || c.library) return {Fit::kNone, kLibrary};
  Fit fit = Fit::kNone;
  bool mapped_pays = true;
  for (int32_t id : c.nodes) {
    for (const Read& r : g_.reads(id)) {
      if (of_[r.value.node] != producer) continue;
      const SpaceLevel from = level_[r.value.node];
      const SpaceLevel to = g_.role(id) == Role::kReduction ? SpaceLevel::kFull : level_[id];
      const Spread& m = r.map;
      if (g_.role(id) == Role::kProduct) return {Fit::kNone, kProductOperand};
      Fit now = Fit::kNone;
      if (from == SpaceLevel::kColumn) {
        const bool back = m.regular && m.a == 1 && m.c == p.space.column && m.b * m.c == p.space.n;
        if (!back || to != SpaceLevel::kFull || p.space.row) return {Fit::kNone, kColumnUsed};
        if (fit == Fit::kEqual) fit = Fit::kAcross;
        now = Fit::kAcross;
      } else if (to == SpaceLevel::kMapped || from == SpaceLevel::kMapped) {
        now = Fit::kMapped;
      } else if (r.gathered) {
        if (from != SpaceLevel::kFull) return {Fit::kNone, kRowIndex};
        // One element of each row, in a group that also uses the whole row.
        if (r.row && to == SpaceLevel::kRow && c.space.row == r.row) {
          now = Fit::kEqual;
        } else if (r.row && to == SpaceLevel::kFull && p.space.row == r.row) {
          now = Fit::kConsumerRow;
        } else {
          now = Fit::kMapped;
        }
      } else if (from == SpaceLevel::kFull) {
        const bool scalar = p.space.n == 1 && g_.points(id) > 1;
        if (scalar) return {Fit::kNone, kScalar};
        if (m.linear()) {
          now = to == SpaceLevel::kFull ? Fit::kEqual : to == SpaceLevel::kRow ? Fit::kProducerRow : Fit::kProducerLane;
        } else if (m.regular && m.c == 1 && to == SpaceLevel::kFull && (c.space.row == 0 || c.space.row == m.b) &&
                   c.space.k == 0) {
          now = Fit::kProducerRow;
        } else if (m.regular && to == SpaceLevel::kFull && c.space.k == m.b && c.space.l == m.c) {
          now = Fit::kProducerLane;
        } else {
          now = Fit::kMapped;
        }
      } else if (from == SpaceLevel::kRow) {
        if (m.linear()) {
          now = to == SpaceLevel::kRow ? Fit::kEqual : to == SpaceLevel::kFull ? Fit::kConsumerRow : Fit::kNone;
        } else if (m.regular && m.c == 1 && m.b == p.space.row && to == SpaceLevel::kFull) {
          now = Fit::kEqual;
        }
        if (now == Fit::kNone) return {Fit::kNone, kRowIndex};
      } else {
        if (m.linear()) {
          now = to == SpaceLevel::kLane ? Fit::kEqual : to == SpaceLevel::kFull ? Fit::kConsumerLane : Fit::kNone;
        } else if (m.regular && m.b == p.space.k && m.c == p.space.l && to == SpaceLevel::kFull) {
          now = Fit::kEqual;
        }
        if (now == Fit::kNone) return {Fit::kNone, kRowIndex};
      }
      if (fit == Fit::kAcross && now == Fit::kEqual) now = fit;
      if (fit != Fit::kNone && fit != now) return {Fit::kNone, kPoints};
      fit = now;
      if (now == Fit::kMapped) {
        const int64_t points = to == SpaceLevel::kRow ? c.space.n / std::max<int64_t>(1, c.space.row) : g_.points(id);
        mapped_pays &= points <= (r.gathered ? 1 : 4) * p.space.n;
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
        flops += g_.scatters_reads(id) ? kChoice : g_.graph().node(id).op->flops_per_point;
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
  for (int32_t id : c.nodes)
    for (const Read& r : g_.reads(id))
      if (r.gathered) {
        const Node& n = g_.graph().node(id);
        if (!carries(n.inputs[0], static_cast<int>(n.attrs.i("dim")), producer, consumer))
          return {Fit::kNone, kCarried};
      }
  return {fit, ""};
}

bool Partition::carries(Value v, int dim, int32_t a, int32_t b) const {
  const Graph& g = g_.graph();
  const Node& n = g.node(v);
  const bool member = of_[v.node] >= 0 && (of_[v.node] == a || of_[v.node] == b);
  if (n.inputs.empty()) return n.op != &iota_op;
  if (member ? n.op->is(kPicks) : g_.is_unit(v.node)) return !member;
  const Shape& out = n.outputs[0].shape;
  if (!n.op->view) {
    for (Value u : n.inputs)
      if (!g.type(u).shape.empty() && !n.op->is(kReduction) && !carries(u, dim, a, b)) return false;
    return true;
  }
  const Shape& in = g.type(n.inputs[0]).shape;
  if (n.op->placing == Placing::kPermute)
    return carries(n.inputs[0], static_cast<int>(n.attrs.ints("dims")[dim]), a, b);
  if (is_broadcast(n)) {
    const int d = dim - (out.size() - in.size());
    return d < 0 || in[d] != out[dim] || carries(n.inputs[0], d, a, b);
  }
  if (is_part(n) && !(in == out)) return false;
  if (n.op->placing == Placing::kReshape) {
    // The dim must stay one dim.
    int64_t before = 1, above = 1;
    for (int d = 0; d < dim; ++d) before *= out[d];
    int d = 0;
    while (d < in.size() && (above < before || in[d] == 1)) above *= in[d++];
    if (above != before || d == in.size() || in[d] != out[dim]) return out[dim] == 1;
    dim = d;
  }
  return carries(n.inputs[0], dim, a, b);
}

/// The space of both groups, if the points of one are also the points of the other.
Match Partition::combine(Space* out, const Group& a, const Group& b, bool across) const {
  if (a.library || b.library) return {Fit::kNone, kLibrary};
  Space s = a.space, t = b.space;
  // A sum over all rows becomes an across reduction if the other group has one of the same size, or if `across` asks
  // for it.
  auto to_across = [&](Space& x, const Space& beside) {
    if (!x.column || x.row || x.k || !(across || (beside.k * beside.l == x.n && beside.l == x.column))) return;
    x.k = x.n / x.column;
    x.l = x.column;
    x.column = 0;
  };
  to_across(s, t);
  to_across(t, s);
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
    // Only values that go into the sum may be in it.
    for (const Group* x : {&a, &b})
      for (int32_t id : x->nodes) {
        if (level_[id] == SpaceLevel::kRow && g_.role(id) != Role::kReduction) return {Fit::kNone, kLong};
        if (level_[id] != SpaceLevel::kFull) continue;
        if (g_.pinned({id, 0})) return {Fit::kNone, kLong};
        for (int32_t i : g_.readers(id)) {
          const int32_t reader = of_[g_.read(i).node];
          if (&groups_[reader] != &a && &groups_[reader] != &b) return {Fit::kNone, kLong};
        }
      }
    // Is the sum of a row used in the group?
    for (const Group* x : {&a, &b})
      for (int32_t id : x->nodes)
        for (const Read& r : g_.reads(id))
          if (int32_t y = of_[r.value.node];
              y >= 0 && (&groups_[y] == &a || &groups_[y] == &b) && level_[r.value.node] == SpaceLevel::kRow)
            return {Fit::kNone, kLong};
  }
  *out = s;
  return {Fit::kEqual, ""};
}

Match Partition::siblings(int32_t a, int32_t b) const {
  Space s;
  if (groups_[a].product >= 0 || groups_[b].product >= 0) return {Fit::kNone, kTwoProducts};
  // One kernel for both would keep a value that is recomputed in order not to be kept.
  bool again[2] = {}, forward[2] = {};
  for (int k = 0; k < 2; ++k)
    for (int32_t id : groups_[k == 0 ? a : b].nodes) {
      again[k] |= g_.graph().node(id).recomputed;
      forward[k] |= !g_.graph().node(id).backward;
    }
  if ((again[0] && forward[1]) || (again[1] && forward[0])) return {Fit::kNone, kAgain};
  return combine(&s, groups_[a], groups_[b]);
}

// ---- savings and conditions of a join ----

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
        bytes += g_.bytes_read(r);
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
      bytes += g_.bytes_read(r);
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
  const int32_t then = g_.library_calls_before(p.last), now = g_.library_calls_before(c.last);
  if (std::abs(now - then) <= kNear) return true;
  if (sibling) return false;
  int64_t more = 0;
  for (int32_t id : p.nodes)
    for (const Read& r : g_.reads(id)) {
      if (of_[r.value.node] < 0 || of_[r.value.node] == a) continue;
      bool dies = !g_.pinned(r.value);
      for (int32_t i : g_.readers(r.value.node)) {
        const Read& x = g_.read(i);
        if (x.value == r.value && of_[x.node] != a) dies &= g_.library_calls_before(x.node) < now;
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

}  // namespace weft::fusion
