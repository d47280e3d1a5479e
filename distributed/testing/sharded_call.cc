#include "distributed/testing/sharded_call.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "distributed/propagate/local_op.h"
#include "framework/testing/values.h"
#include "ops/core/core.h"

namespace weft::testing {

using dist::Axes;
using dist::Mesh;
using dist::Rule;
using dist::Spec;

namespace {

// Positions of a sequence in an arbitrary order, the same in all calls.
Tensor any_order(int64_t length) {
  std::vector<int64_t> at(static_cast<size_t>(length));
  std::iota(at.begin(), at.end(), 0);
  std::shuffle(at.begin(), at.end(), std::mt19937(static_cast<uint32_t>(length)));
  return Tensor::from_vector(at, {length});
}

class Here final : public dist::Locals {
 public:
  Here(const Mesh& mesh, const dist::FactorSplit& split, int rank) : mesh_(mesh), rank_(rank) {
    for (const dist::DimSpec& dim : split)
      for (const dist::Seg& s : dim)
        if (s.layout == dist::SegLayout::kTable) positions_.positions = any_order(s.extent);
    if (positions_.positions.defined()) positions_.places = argsort(positions_.positions, 0);
  }
  const Mesh& mesh() const override { return mesh_; }
  int rank() const override { return rank_; }
  Tensor coordinate(const Axes& axes) override { return constant(mesh_.coordinate(rank_, axes), kInt64); }
  const dist::PositionTable& positions() override { return positions_; }

 private:
  const Mesh& mesh_;
  int rank_;
  dist::PositionTable positions_;
};

Axes pending_axes(const Spec& spec) {
  Axes axes;
  for (const dist::Pending& p : spec.pending) axes.push_back(p.axis);
  return axes;
}

Spec without_pending(Spec spec) {
  spec.pending = {};
  return spec;
}

Tensor own_part(const Mesh& mesh, const Spec& spec, const Tensor& whole, int rank) {
  Spec own = without_pending(spec);
  Tensor from = whole;
  for (size_t d = 0; d < own.dims.size(); ++d) {  // these positions are blocks of the whole in this order
    int64_t major = 1, minor = whole.size(static_cast<int64_t>(d));
    for (dist::Seg& s : own.dims[d]) {
      if (s.extent > 0) minor /= s.extent;
      if (s.layout == dist::SegLayout::kTable) {
        Shape apart;
        for (int64_t k = 0; k < whole.dim(); ++k) {
          if (k != static_cast<int64_t>(d)) apart.push_back(whole.size(k));
          if (k == static_cast<int64_t>(d))
            for (int64_t e : {major, s.extent, minor}) apart.push_back(e);
        }
        from = reshape(index_select(reshape(from, apart), static_cast<int64_t>(d) + 1, any_order(s.extent)),
                       whole.shape());
        s.layout = dist::SegLayout::kBlock;
      }
      major *= s.extent;
    }
  }
  return dist::shard(mesh, own, from, rank).to(Device::cpu());
}

}  // namespace

Tensor part_of(const Mesh& mesh, const Spec& spec, const Tensor& whole, int rank, uint64_t seed) {
  if (spec.pending.empty()) return own_part(mesh, spec, whole, rank);
  const Axes axes = pending_axes(spec);
  const int64_t n = mesh.parts(axes), mine = mesh.coordinate(rank, axes);
  const ReduceOp op = spec.pending[0].op;
  Random random(seed);
  Tensor left = whole;
  for (int64_t i = 0; i + 1 < n; ++i) {
    const Tensor term = random_tensor(whole.dtype(), whole.shape(), random, op == ReduceOp::kSum ? -3 : 1, 3);
    const Tensor of_rank = op == ReduceOp::kSum ? term : op == ReduceOp::kMax ? whole - term : whole + term;
    if (mine == i) return own_part(mesh, spec, of_rank, rank);
    if (op == ReduceOp::kSum) left = left - term;
  }
  return own_part(mesh, spec, left, rank);
}

Tensor reduced(const Mesh& mesh, const Spec& spec, const std::vector<Tensor>& parts, int rank) {
  if (spec.pending.empty()) return parts[static_cast<size_t>(rank)];
  const ReduceOp op = spec.pending[0].op;
  Tensor all;
  for (int peer : mesh.group(rank, pending_axes(spec))) {
    const Tensor& t = parts[static_cast<size_t>(peer)];
    if (!all.defined()) {
      all = t;
    } else if (t.dtype() == kBool) {
      all = op == ReduceOp::kMax ? logical_or(all, t) : logical_and(all, t);
    } else {
      all = op == ReduceOp::kMax ? maximum(all, t) : op == ReduceOp::kMin ? minimum(all, t) : all + t;
    }
  }
  return all;
}

std::string difference(const Tensor& got, const Tensor& want, bool exact) {
  if (got.shape() != want.shape() || got.dtype() != want.dtype()) return str_cat(got.type(), " for ", want.type());
  const std::vector<Real> a = to_reals(got), b = to_reals(want);
  Real bound = 0;
  if (is_floating(want.dtype()) && !exact) {
    Real largest = 1;
    for (Real x : b)
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    bound = largest * (want.dtype() == kFloat64 ? Real(1e-12) : 64 * static_cast<Real>(unit_roundoff(want.dtype())));
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    if (!(std::abs(a[i] - b[i]) <= bound))
      return str_cat("element ", i, " is ", static_cast<double>(a[i]), "; need ", static_cast<double>(b[i]));
  }
  return "";
}

std::string difference(const Mesh& mesh, const Spec& spec, const std::vector<Tensor>& parts, const Tensor& whole,
                       bool exact) {
  for (int r = 0; r < mesh.size(); ++r) {
    const std::string d =
        difference(reduced(mesh, spec, parts, r), own_part(mesh, spec, whole, r), exact && spec.pending.empty());
    if (!d.empty()) return str_cat("rank ", r, ": ", d);
  }
  return "";
}

std::vector<std::vector<Tensor>> run_on_all(const Mesh& mesh, const RuleCase& c, const Rule& rule,
                                            const SplitCall& call) {
  std::vector<std::vector<Tensor>> results;
  for (int r = 0; r < mesh.size(); ++r) {
    std::vector<Tensor> in;
    for (size_t i = 0; i < c.in.size(); ++i) in.push_back(part_of(mesh, call.in[i], c.in[i], r, 50 + i));
    Here here(mesh, call.split, r);
    results.push_back(dist::local_op({c.call(), c.graph, rule, call.split, nullptr, in, here}));
  }
  return results;
}

}  // namespace weft::testing
