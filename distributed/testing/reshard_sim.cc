#include "distributed/testing/reshard_sim.h"

#include <algorithm>

#include "ops/core/core.h"

namespace weft::testing {

using dist::Axes;
using dist::Mesh;
using dist::Move;
using dist::ReshardStep;
using dist::Seg;
using dist::SegLayout;
using dist::SpecPart;

const char* to_string(Move m) {
  static constexpr const char* kNames[] = {"slice",      "make-pending", "reduce-scatter",  "all-reduce",
                                           "all-to-all", "all-gather",   "all-to-all rows", "impossible"};
  return kNames[static_cast<int>(m)];
}

namespace {

Seg seg(const SpecPart& p) { return {p.extent, p.axes, p.layout}; }

std::vector<int64_t> owned(const Mesh& mesh, const SpecPart& p, int rank) {
  dist::DimSpec d;
  d.push_back(seg(p));
  return dist::global_indices(mesh, d, rank);
}

// The elements at these positions of a dim.
Tensor pick(const Tensor& t, int dim, const std::vector<int64_t>& at) {
  return index_select(t, dim, Tensor::from_vector<int64_t>(at, {static_cast<int64_t>(at.size())}));
}

// The positions in `have` of the indices in `want`. Both list indices into the whole, in any order.
std::vector<int64_t> places(const std::vector<int64_t>& have, const std::vector<int64_t>& want) {
  std::vector<int64_t> out;
  for (int64_t w : want) {
    const auto it = std::find(have.begin(), have.end(), w);
    WEFT_CHECK(it != have.end(), "reshard: a rank lacks index ", w);
    out.push_back(it - have.begin());
  }
  return out;
}

Tensor add(const Tensor& a, const Tensor& b, ReduceOp op) {
  return op == ReduceOp::kMax ? maximum(a, b) : op == ReduceOp::kMin ? minimum(a, b) : a + b;
}

class Simulation {
 public:
  Simulation(const Mesh& mesh, const dist::ReshardStage& stage, std::vector<Tensor> parts)
      : mesh_(mesh), parts_(stage.parts), at_(std::move(parts)) {
    for (int r = 0; r < mesh.size(); ++r) {
      Shape s;
      for (const SpecPart& p : parts_) s.push_back(dist::local_extent(mesh, seg(p), r));
      at(r) = reshape(at(r), s);
    }
    for (const ReshardStep& step : stage.steps) take(step);
    for (int r = 0; r < mesh.size(); ++r) at(r) = reshape(at(r), joined(r));
  }
  std::vector<Tensor> done() { return std::move(at_); }

 private:
  Tensor& at(int r) { return at_[static_cast<size_t>(r)]; }

  Shape joined(int r) const {
    Shape dims;
    int last = -1;
    for (const SpecPart& p : parts_) {
      const int64_t n = dist::local_extent(mesh_, seg(p), r);
      if (p.dim == last) {
        dims.back() *= n;
      } else {
        dims.push_back(n);
      }
      last = p.dim;
    }
    return dims;
  }

  // Cuts each rank's part `from` of dim k to the part `to`.
  void cut(int k, const SpecPart& from, const SpecPart& to) {
    for (int r = 0; r < mesh_.size(); ++r) at(r) = pick(at(r), k, places(owned(mesh_, from, r), owned(mesh_, to, r)));
  }

  // Joins the peers' parts of dim k on each rank, in the order of the whole.
  void join(int k, const SpecPart& from, const SpecPart& to, const Axes& axes) {
    std::vector<Tensor> next;
    for (int r = 0; r < mesh_.size(); ++r) {
      std::vector<Tensor> all;
      std::vector<int64_t> have;
      for (int peer : mesh_.group(r, axes)) {
        all.push_back(at(peer));
        for (int64_t i : owned(mesh_, from, peer)) have.push_back(i);
      }
      next.push_back(pick(weft::cat(all, k), k, places(have, owned(mesh_, to, r))));
    }
    at_ = std::move(next);
  }

  void reduce(const Axes& axes, ReduceOp op) {
    std::vector<Tensor> next;
    for (int r = 0; r < mesh_.size(); ++r) {
      Tensor sum;
      for (int peer : mesh_.group(r, axes)) sum = sum.defined() ? add(sum, at(peer), op) : at(peer);
      next.push_back(sum);
    }
    at_ = std::move(next);
  }

  static SpecPart grown(SpecPart p, const Axes& axes, SegLayout layout) {
    for (int8_t a : axes) p.axes.push_back(a);
    p.layout = layout;
    return p;
  }
  static SpecPart shrunk(const SpecPart& p, const Axes& axes) {
    WEFT_CHECK(axes.size() <= p.axes.size(), "reshard: more axes go than there are");
    SpecPart out = p;
    out.axes = {};
    const size_t left = p.axes.size() - axes.size();
    for (size_t i = 0; i < left; ++i) out.axes.push_back(p.axes[i]);
    for (size_t i = 0; i < axes.size(); ++i)
      WEFT_CHECK(p.axes[left + i] == axes[i], "reshard: axes that go are not the minor ones");
    if (out.axes.empty()) out.layout = SegLayout::kBlock;
    return out;
  }

  void take(const ReshardStep& step) {
    SpecPart& part = parts_[static_cast<size_t>(step.part)];
    switch (step.move) {
      case Move::kSlice: {
        const SpecPart to = grown(part, step.axes, step.layout);
        cut(step.part, part, to);
        part = to;
        return;
      }
      case Move::kMakePending:
        for (int r = 0; r < mesh_.size(); ++r)
          if (mesh_.coordinate(r, step.axes) != 0) at(r) = zeros_like(at(r));
        return;
      case Move::kAllReduce:
        return reduce(step.axes, step.op);
      case Move::kReduceScatter: {
        reduce(step.axes, step.op);
        const SpecPart to = grown(part, step.axes, step.layout);
        cut(step.part, part, to);
        part = to;
        return;
      }
      case Move::kAllGather: {
        const SpecPart to = shrunk(part, step.axes);
        join(step.part, part, to, step.axes);
        part = to;
        return;
      }
      case Move::kAllToAll: {
        SpecPart& from = parts_[static_cast<size_t>(step.from)];
        const SpecPart whole = shrunk(from, step.axes), to = grown(part, step.axes, step.layout);
        join(step.from, from, whole, step.axes);
        from = whole;
        cut(step.part, part, to);
        part = to;
        return;
      }
      case Move::kRows:
      case Move::kNever:
        WEFT_BUG_IF(true, "reshard: ", to_string(step.move), " is no move of a plain tensor");
    }
  }

  const Mesh& mesh_;
  std::vector<SpecPart> parts_;
  std::vector<Tensor> at_;
};

}  // namespace

std::vector<Tensor> simulate(const Mesh& mesh, const std::vector<dist::ReshardStage>& stages,
                             std::vector<Tensor> parts) {
  for (const dist::ReshardStage& s : stages) parts = Simulation(mesh, s, std::move(parts)).done();
  return parts;
}

}  // namespace weft::testing
