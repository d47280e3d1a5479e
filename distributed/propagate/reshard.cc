#include "distributed/propagate/reshard.h"

#include <algorithm>

#include "compiler/cost/collective_seconds.h"
#include "distributed/placement/replica.h"
#include "framework/base/error.h"

namespace weft::dist {
namespace {

struct PartChange {  // one part, with its current and its new split
  SpecPart now;
  Axes to;
  SegLayout to_layout = SegLayout::kBlock;
};

// The common refinement of two specs of one dim; false if a split of one crosses a split of the other.
bool refine(const Mesh& mesh, int dim, const DimSpec& from, const DimSpec& to, std::vector<PartChange>& out) {
  std::vector<Seg> a(from.begin(), from.end()), b(to.begin(), to.end());
  std::reverse(a.begin(), a.end());
  std::reverse(b.begin(), b.end());
  while (!a.empty() && !b.empty()) {
    Seg x = a.back(), y = b.back();
    a.pop_back();
    b.pop_back();
    if (x.extent != y.extent) {
      Seg& larger = x.extent > y.extent ? x : y;
      const int64_t less = std::min(x.extent, y.extent);
      if (less == 0 || larger.extent % less != 0) return false;
      DimSpec one;
      one.push_back(larger);
      const auto parts = cut(mesh, one, {less, larger.extent / less});
      if (!parts || (*parts)[0].size() != 1) return false;
      auto& rest = &larger == &x ? a : b;
      for (size_t i = (*parts)[1].size(); i-- > 0;) rest.push_back((*parts)[1][i]);
      larger = (*parts)[0][0];
    }
    out.push_back({{dim, x.extent, x.axes, x.layout, x.room}, y.axes, y.layout});
  }
  for (auto* rest : {&a, &b})
    for (const Seg& s : *rest) {
      if (s.extent != 1) return false;
      out.push_back({{dim, 1, rest == &a ? s.axes : Axes{}, s.layout}, rest == &b ? s.axes : Axes{}, s.layout});
    }
  return true;
}

size_t common(const PartChange& p) {
  if (p.now.layout != SegLayout::kBlock || p.to_layout != SegLayout::kBlock)
    return p.now.axes == p.to && p.now.layout == p.to_layout ? p.to.size() : 0;
  size_t n = 0;
  while (n < p.now.axes.size() && n < p.to.size() && p.now.axes[n] == p.to[n]) ++n;
  return n;
}

Axes tail(const Axes& a, size_t from) { return Axes(std::span(a.begin() + from, a.end())); }

class Resharder {
 public:
  Resharder(std::vector<PartChange> pairs, const Spec& from, const Spec& to, int replica)
      : replica_(replica), pairs_(std::move(pairs)), pending_(from.pending), want_(to.pending) {
    for (const PartChange& p : pairs_) stage_.parts.push_back(p.now);
  }

  ReshardStage run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t i = 0; i < pairs_.size(); ++i) moved |= slice(i);
      for (size_t i = 0; i < pairs_.size(); ++i) moved |= scatter(i);
      if (moved) continue;
      for (size_t i = 0; i < pairs_.size() && !moved; ++i)
        for (size_t j = 0; j < pairs_.size() && !moved; ++j) moved = exchange(i, j);
      if (moved) continue;
      moved = reduce();
      if (moved) continue;
      for (size_t i = 0; i < pairs_.size() && !moved; ++i) moved = gather(i);
    }
    make_pending();
    return std::move(stage_);
  }

 private:
  bool is_pending(int8_t axis) const {
    return std::any_of(pending_.begin(), pending_.end(), [&](const Pending& p) { return p.axis == axis; });
  }
  bool wants(const Pending& p) const { return want_.contains(p); }
  bool used(int8_t axis) const {
    for (const PartChange& p : pairs_)
      if (p.now.axes.contains(axis)) return true;
    return is_pending(axis);
  }
  // The axes that part i lacks; none if it must first give up other axes.
  Axes gains(size_t i) const {
    const PartChange& p = pairs_[i];
    const size_t n = common(p);
    return n == p.now.axes.size() ? tail(p.to, n) : Axes{};
  }
  void split(size_t i, const Axes& axes) {
    PartChange& p = pairs_[i];
    for (int8_t a : axes) p.now.axes.push_back(a);
    p.now.layout = p.to_layout;
  }

  bool slice(size_t i) {
    Axes run;
    const Axes want = gains(i);
    for (int8_t a : want) {
      if (used(a)) break;
      run.push_back(a);
    }
    if (run.empty() || (pairs_[i].to_layout != SegLayout::kBlock && run.size() != want.size())) return false;
    stage_.steps.push_back({Move::kSlice, static_cast<int>(i), 0, run, ReduceOp::kSum, pairs_[i].to_layout});
    split(i, run);
    return true;
  }

  bool scatter(size_t i) {
    Axes run;
    ReduceOp op = ReduceOp::kSum;
    const Axes want = gains(i);
    for (int8_t a : want) {
      auto it = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& p) { return p.axis == a; });
      if (a == replica_) break;
      if (it == pending_.end() || (!run.empty() && it->op != op)) break;
      op = it->op;
      run.push_back(a);
    }
    if (run.empty() || (pairs_[i].to_layout != SegLayout::kBlock && run.size() != want.size())) return false;
    stage_.steps.push_back({Move::kReduceScatter, static_cast<int>(i), 0, run, op, pairs_[i].to_layout});
    drop_pending(run);
    split(i, run);
    return true;
  }

  // Moves axes that part j must give up to part i.
  bool exchange(size_t i, size_t j) {
    if (i == j) return false;
    const Axes want = gains(i);
    const Axes give = tail(pairs_[j].now.axes, common(pairs_[j]));
    if (want.empty() || give.empty() || pairs_[j].to_layout != SegLayout::kBlock) return false;
    // The longest suffix of `give` that is a prefix of `want`.
    for (size_t n = std::min(give.size(), want.size()); n > 0; --n) {
      if (!std::equal(give.end() - n, give.end(), want.begin())) continue;
      // Layouts other than blocks are added and removed as a whole.
      if (pairs_[i].to_layout != SegLayout::kBlock && n != want.size()) continue;
      if (pairs_[j].now.layout != SegLayout::kBlock && n != pairs_[j].now.axes.size()) continue;
      const Axes run(std::span(want.begin(), n));
      stage_.steps.push_back(
          {Move::kAllToAll, static_cast<int>(i), static_cast<int>(j), run, ReduceOp::kSum, pairs_[i].to_layout});
      shrink(pairs_[j].now, n);
      split(i, run);
      return true;
    }
    return false;
  }

  // Sums over replicas come last and by themselves, so the shards that are reduced inside a replica cross.
  bool reduce() {
    for (const bool replicas : {false, true})
      for (const Pending& first : pending_) {
        const auto here = [&](const Pending& p) { return !wants(p) && (p.axis == replica_) == replicas; };
        if (!here(first)) continue;
        Axes run;
        const ReduceOp op = first.op;
        for (const Pending& p : pending_)
          if (p.op == op && here(p)) run.push_back(p.axis);
        stage_.steps.push_back({Move::kAllReduce, 0, 0, run, op});
        drop_pending(run);
        return true;
      }
    return false;
  }

  bool gather(size_t i) {
    PartChange& p = pairs_[i];
    const size_t n = common(p);
    if (n == p.now.axes.size()) return false;
    stage_.steps.push_back(
        {Move::kAllGather, static_cast<int>(i), 0, tail(p.now.axes, n), ReduceOp::kSum, p.now.layout});
    shrink(p.now, p.now.axes.size() - n);
    return true;
  }

  // Copies already are terms of a maximum, a minimum or a mean.
  void make_pending() {
    Axes run;
    for (const Pending& p : want_)
      if (!is_pending(p.axis) && p.op == ReduceOp::kSum) run.push_back(p.axis);
    if (!run.empty()) stage_.steps.push_back({Move::kMakePending, 0, 0, run});
  }

  void drop_pending(const Axes& axes) {
    const auto end =
        std::remove_if(pending_.begin(), pending_.end(), [&](const Pending& p) { return axes.contains(p.axis); });
    pending_.resize(end - pending_.begin());
  }

  const int replica_;  // the axis of replicas; -1: none
  std::vector<PartChange> pairs_;
  SmallVec<Pending, 2> pending_, want_;
  ReshardStage stage_;
};

// Changes the layout of rows sorted by expert, then reshards the other dims. Rows support no other moves.
std::vector<ReshardStage> move_rows(const Mesh& mesh, const Spec& from, const Spec& to, size_t dim) {
  ReshardStage s;
  for (size_t d = 0; d < from.dims.size(); ++d)
    for (const Seg& seg : from.dims[d])
      s.parts.push_back({static_cast<int>(d), seg.extent, seg.axes, seg.layout, seg.room});
  const Seg &a = from.dims[dim][0], &b = to.dims[dim][0];
  ReshardStep step{Move::kNever, static_cast<int>(dim), 0, {}};
  if (is_rows(from.dims[dim]) && is_rows(to.dims[dim]) && a.axes == b.axes && a.layout != b.layout &&
      s.parts.size() == from.dims.size()) {
    step.move = Move::kRows;
    step.axes = a.layout == SegLayout::kByExpert ? a.experts : b.experts;
    step.layout = b.layout;
    step.room = b.room;
  }
  s.steps.push_back(step);
  std::vector<ReshardStage> out{s};
  if (step.move == Move::kNever) return out;
  Spec between = from;
  between.dims[dim] = to.dims[dim];
  for (ReshardStage& rest : reshard(mesh, between, to)) out.push_back(std::move(rest));
  return out;
}

}  // namespace

void shrink(SpecPart& part, size_t n) {
  part.axes.resize(part.axes.size() - n);
  if (part.axes.empty()) part.layout = SegLayout::kBlock;
}

std::vector<ReshardStage> reshard(const Mesh& mesh, const Spec& from, const Spec& to) {
  if (from == to) return {};
  for (size_t d = 0; d < from.dims.size() && d < to.dims.size(); ++d) {
    if (from.dims[d] == to.dims[d] || (!is_rows(from.dims[d]) && !is_rows(to.dims[d]))) continue;
    return move_rows(mesh, from, to, d);
  }
  WEFT_BUG_IF(from.dims.size() != to.dims.size(), "reshard: ", to_string(mesh, from), " to ", to_string(mesh, to));
  std::vector<PartChange> pairs;
  for (size_t d = 0; d < from.dims.size(); ++d) {
    std::vector<PartChange> own;
    if (!refine(mesh, static_cast<int>(d), from.dims[d], to.dims[d], own)) {
      Spec between = to;
      for (size_t k = 0; k < to.dims.size(); ++k) {
        std::vector<PartChange> unused;
        if (refine(mesh, static_cast<int>(k), from.dims[k], to.dims[k], unused)) continue;
        int64_t extent = 1;
        for (const Seg& s : from.dims[k]) extent *= s.extent;
        between.dims[k] = one_segment(extent);
      }
      std::vector<ReshardStage> stages = reshard(mesh, from, between);
      for (ReshardStage& s : reshard(mesh, between, to)) stages.push_back(std::move(s));
      return stages;
    }
    for (PartChange& p : own) pairs.push_back(std::move(p));
  }
  ReshardStage s = Resharder(std::move(pairs), from, to, replica_axis(mesh)).run();
  if (s.steps.empty()) return {};
  std::vector<ReshardStage> out;
  out.push_back(std::move(s));
  return out;
}

double sent_bytes(Move move, double bytes, int64_t n) {
  const auto ranks = static_cast<double>(n);
  switch (move) {
    case Move::kAllGather:  // the result is larger than the operand
      return bytes * ranks * bus_factor(Collective::kAllGather, ranks);
    case Move::kReduceScatter:
      return bytes * bus_factor(Collective::kReduceScatter, ranks);
    case Move::kAllReduce:
      return bytes * bus_factor(Collective::kAllReduce, ranks);
    case Move::kAllToAll:
    case Move::kRows:
      return bytes * bus_factor(Collective::kAllToAll, ranks);
    case Move::kNever:
      return 1e30;
    default:
      return 0;
  }
}

MoveCost cost_of(const Mesh& mesh, const std::vector<ReshardStage>& stages, DType dtype) {
  MoveCost c;
  const auto replica = static_cast<int8_t>(replica_axis(mesh));
  for (const ReshardStage& s : stages) {
    double bytes = static_cast<double>(itemsize(dtype));
    for (const SpecPart& p : s.parts) {
      const int64_t n = mesh.parts(p.axes);  // rows by expert count as an average share
      bytes *= static_cast<double>((p.extent + n - 1) / n);
    }
    for (const ReshardStep& step : s.steps) {
      const int64_t n = mesh.parts(step.axes);
      const bool exchanges = step.move != Move::kSlice && step.move != Move::kMakePending;
      const bool possible = !exchanges || step.move == Move::kAllReduce || !step.axes.contains(replica);
      c.bytes += sent_bytes(possible ? step.move : Move::kNever, bytes, n);
      c.collectives += exchanges;
      if (step.move == Move::kAllGather) bytes *= static_cast<double>(n);
      if (step.move == Move::kSlice || step.move == Move::kReduceScatter) bytes /= static_cast<double>(n);
    }
  }
  return c;
}

}  // namespace weft::dist
