#include "compiler/loop_ir/schedule.h"

#include <algorithm>

#include "framework/base/str_cat.h"
#include "ops/numerics/reduce_order.h"

namespace weft::loop_ir {
namespace {

// Sums of at most this many columns use accumulators in memory (kColumn). Wider sums use registers (kAcross) or are not
// fused.
constexpr int64_t kMaxColumns = 16384;
// A row longer than this, if there are few rows to share among threads, is summed in pieces or not fused.
constexpr int64_t kLongRow = 32768;
constexpr int64_t kFewRows = 4;

struct Sets {
  uint32_t all = 0;
  uint32_t consumed = 0;  // axes of reductions whose result is used in the kernel
  bool consumes = false;
  std::vector<uint32_t> ends;  // ends of reductions that are only results
};

class AxisScheduler {
 public:
  AxisScheduler(const Domain& d, std::vector<Access>& accesses, bool in_order)
      : d_(d), accesses_(accesses), in_order_(in_order) {}

  Schedule run() {
    s_.is_column.resize(d_.exprs.size());
    for (size_t a = 0; a < d_.extents.size(); ++a) sets_.all |= 1u << a;
    collect();
    choose();
    if (!s_.loop && !s_.lanes) choose_lanes();
    order();
    return std::move(s_);
  }

 private:
  int64_t points(uint32_t set) const {
    int64_t n = 1;
    for (size_t a = 0; a < d_.extents.size(); ++a)
      if (set >> a & 1) n *= d_.extents[a];
    return n;
  }
  uint32_t last() const { return sets_.all ? 1u << (d_.extents.size() - 1) : 0; }
  /// Whether the axes of `set` are consecutive in the domain.
  static bool run_of_axes(uint32_t set) {
    if (!set) return false;
    while (!(set & 1)) set >>= 1;
    return (set & (set + 1)) == 0;
  }
  bool suffix(uint32_t set) const { return (set & last()) && run_of_axes(set); }

  void collect() {
    std::vector<bool> used(d_.exprs.size());
    for (const Expr& e : d_.exprs)
      for (int32_t a : e.args) used[a] = true;
    bool first = true;
    for (size_t i = 0; i < d_.exprs.size(); ++i) {
      const Expr& e = d_.exprs[i];
      if (e.kind != Expr::kReduction) continue;
      if (!e.reduced) throw Unfusable{"a sum has only one element"};
      if (!used[i]) {
        sets_.ends.push_back(e.reduced);
        continue;
      }
      if (!first && sets_.consumed != e.reduced) throw Unfusable{"its reductions run over different axes"};
      sets_.consumed = e.reduced;
      sets_.consumes = true;
      first = false;
    }
  }

  /// Sets loop and lanes from the reductions, if any.
  void choose() {
    if (d_.dot >= 0) {
      if (sets_.consumes || !sets_.ends.empty()) throw Unfusable{"a reduction needs more than one tile of the product"};
      return;  // lanes are the columns of the product: see choose_lanes()
    }
    if (sets_.consumes) {
      set_rows(sets_.consumed);
      const int64_t rows = points(sets_.all & ~s_.loop & ~s_.lanes);
      if (s_.mode == Mode::kRows && rows < kFewRows && points(s_.loop) > kLongRow)
        throw Unfusable{"its rows are few and long: the ops after the sum wait for the whole sum"};
      for (uint32_t e : sets_.ends)
        if (e != s_.loop) set_column(e);
      return;
    }
    if (sets_.ends.empty()) return;
    // All reductions are results only. If one of them reduces the last axis: rows; otherwise columns or across.
    uint32_t rows = 0;
    for (uint32_t e : sets_.ends)
      if (e & last()) rows = e;
    if (rows) {
      set_rows(rows);
      bool same = true;
      for (uint32_t e : sets_.ends) same &= e == rows;
      if (!same) {
        for (uint32_t e : sets_.ends)
          if (e != rows) set_column(e);
      } else if (s_.mode == Mode::kRows && points(sets_.all & ~rows) < kFewRows && points(rows) > kLongRow) {
        if (only_ends()) {
          s_.mode = Mode::kSplit;
        } else {
          throw Unfusable{"its rows are few and long, and other results need them too"};
        }
      }
      return;
    }
    const uint32_t r = sets_.ends[0];
    for (uint32_t e : sets_.ends)
      if (e != r) throw Unfusable{"its reductions run over different axes"};
    const uint32_t kept = sets_.all & ~r;
    const bool leading = suffix(kept);
    if (leading && points(kept) <= kMaxColumns && points(r) >= 64 && points(kept) >= 16 && one_axis(kept)) {
      s_.reduces = true;
      s_.loop = s_.lanes = kept;
      set_column(r);
      return;
    }
    set_rows(r);
  }

  void set_rows(uint32_t r) {
    s_.reduces = true;
    if (suffix(r)) {
      s_.mode = Mode::kRows;
      s_.loop = s_.lanes = r;
      return;
    }
    if (!run_of_axes(r)) throw Unfusable{"it reduces axes that are not adjacent"};
    s_.mode = Mode::kAcross;
    s_.loop = r;
    s_.lanes = last();
  }

  void set_column(uint32_t r) {
    if (s_.mode != Mode::kRows || r != (sets_.all & ~s_.loop))
      throw Unfusable{"a sum over rows beside it does not reduce all outer axes"};
    if (points(s_.loop) > kMaxColumns) throw Unfusable{"a sum over rows beside it has too many columns"};
    for (size_t i = 0; i < d_.exprs.size(); ++i)
      if (d_.exprs[i].kind == Expr::kReduction && d_.exprs[i].reduced == r) s_.is_column[i] = true;
  }

  bool only_ends() const {
    for (const MappedExpr& r : d_.results)
      if (d_.exprs[r.expr].kind != Expr::kReduction) return false;
    return true;
  }

  /// For elementwise kernels: the axis along which the most bytes are contiguous.
  void choose_lanes() {
    if (d_.dot >= 0) {
      // The columns of the product: the last dims of its result.
      const IndexMap* map = nullptr;
      for (const Expr& e : d_.exprs)
        if (e.kind == Expr::kTile) map = &e.map;
      if (!map) throw Unfusable{"the product is not used"};
      for (int i = 0; i < d_.dot_columns; ++i)
        for (const Term& t : (*map)[map->size() - 1 - i].terms) s_.lanes |= 1u << t.axis;
      if (!s_.lanes) throw Unfusable{"the product has one column"};
      s_.loop = s_.lanes;
      return;
    }
    if (!sets_.all) return;
    int best = -1;
    double most = -1;
    for (int a = static_cast<int>(d_.extents.size()) - 1; a >= 0; --a) {
      double w = 0;
      for (const Access& x : accesses_)
        if (x.strides[a] == 1) w += x.weight * share(x) * (d_.extents[a] >= 16 ? 1.0 : 0.25);
      if (w > most) {
        most = w;
        best = a;
      }
    }
    s_.lanes = s_.loop = 1u << best;
  }

  /// Less than 1 if the operand does not change along an axis. It uses classes of extents, so that similar lengths get
  /// the same lanes.
  double share(const Access& x) const {
    double s = 1;
    for (size_t a = 0; a < d_.extents.size(); ++a)
      if (x.strides[a] == 0 && x.index_stride == 0) s /= d_.extents[a] >= 16 ? 16 : 2;
    return s;
  }

  bool joins(int major, int minor) const {
    for (const Access& x : accesses_)
      if (x.strides[major] != x.strides[minor] * d_.extents[minor]) return false;
    return true;
  }

  /// Whether every access can treat these axes as one.
  bool one_axis(uint32_t set) const {
    for (int a = 0, before = -1; a < static_cast<int>(d_.extents.size()); ++a) {
      if (!(set >> a & 1)) continue;
      if (before >= 0 && !joins(before, a)) return false;
      before = a;
    }
    return true;
  }

  /// A long row that an operand does not see as one, such as a broadcast matrix that is summed as a whole: its last
  /// axes are the lanes, and the rows before them are outer points whose blocks are combined together. Blocks must not
  /// go over the end of a lane; the GPU combines two at least.
  void cut_row() {
    uint32_t lanes = 0;
    for (int a = static_cast<int>(d_.extents.size()) - 1, after = -1; a >= 0 && (s_.lanes >> a & 1); --a) {
      if (after >= 0 && !joins(a, after)) break;
      lanes |= 1u << a;
      after = a;
    }
    if (lanes == s_.lanes || points(lanes) % (2 * kReduceBlock) != 0) return;
    s_.joined = s_.lanes & ~lanes;
    s_.loop = s_.lanes = lanes;
  }

  void order() {
    if (s_.mode == Mode::kSplit) cut_row();
    const bool across = s_.mode == Mode::kAcross;
    std::vector<int> outer, joined, loop, lanes;
    for (int a = 0; a < static_cast<int>(d_.extents.size()); ++a) {
      if (s_.lanes >> a & 1) {
        lanes.push_back(a);
      } else if (s_.joined >> a & 1) {
        joined.push_back(a);
      } else if (across && (s_.loop >> a & 1)) {
        loop.push_back(a);
      } else {
        outer.push_back(a);
      }
    }
    const bool elementwise = sets_.ends.empty() && !sets_.consumes && d_.dot < 0;
    if ((elementwise || across) && !lanes.empty()) {
      // Outer axes that every access can join to the lane axis become part of it.
      for (bool grown = true; grown;) {
        grown = false;
        for (size_t i = 0; i < outer.size() && !grown; ++i)
          if (joins(outer[i], lanes.front())) {
            lanes.insert(lanes.begin(), outer[i]);
            outer.erase(outer.begin() + i);
            grown = true;
          }
      }
    }
    if (elementwise && !in_order_ && !lanes.empty()) put_across_last(outer, lanes.back());
    add_merged(outer, false);
    add_merged(joined, false);
    if (across) add_merged(loop, true);
    if (lanes.empty()) {
      s_.axes.push_back({});
      s_.extents.push_back(1);
    } else {
      add_merged(lanes, true);
    }
    for (Access& x : accesses_) {
      std::vector<int64_t> strides;
      for (const auto& group : s_.axes) strides.push_back(group.empty() ? 0 : x.strides[group.back()]);
      x.strides = std::move(strides);
    }
  }

  /// Operands that are transposed against the lanes are read by tiles of lanes x the last outer axis. So the last outer
  /// axis should be the one along which most of their bytes are contiguous.
  void put_across_last(std::vector<int>& outer, int lane) const {
    double most = 0;
    size_t best = outer.size();
    for (size_t i = 0; i < outer.size(); ++i) {
      double w = 0;
      for (const Access& x : accesses_)
        if (x.strides[lane] > 1 && x.strides[outer[i]] == 1 && x.index_stride == 0 && d_.extents[outer[i]] >= 16)
          w += x.weight * share(x);
      if (w > most) most = w, best = i;
    }
    if (best < outer.size()) std::rotate(outer.begin() + best, outer.begin() + best + 1, outer.end());
  }

  void add_merged(const std::vector<int>& list, bool whole) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0 && joins(list[i - 1], list[i])) {
        s_.axes.back().push_back(list[i]);
        s_.extents.back() *= d_.extents[list[i]];
        continue;
      }
      if (i > 0 && whole) throw Unfusable{"the layout of an operand does not allow its loop axes to merge"};
      s_.axes.push_back({list[i]});
      s_.extents.push_back(d_.extents[list[i]]);
    }
  }

  const Domain& d_;
  std::vector<Access>& accesses_;
  const bool in_order_;
  Schedule s_;
  Sets sets_;
};

}  // namespace

Schedule make_schedule(const Domain& d, std::vector<Access>& accesses, bool in_order) {
  return AxisScheduler(d, accesses, in_order).run();
}

}  // namespace weft::loop_ir
