#include "distributed/testing/specs.h"

#include <algorithm>

#include "ops/core/core.h"

namespace weft::testing {

using dist::Axes;
using dist::DimSpec;
using dist::Mesh;
using dist::SegLayout;
using dist::Spec;

namespace {

// All ordered choices of axes.
std::vector<Axes> choices(int axes) {
  std::vector<Axes> out{{}};
  for (size_t i = 0; i < out.size(); ++i)
    for (int8_t a = 0; a < axes; ++a) {
      bool used = false;
      for (int8_t x : out[i]) used |= x == a;
      if (used) continue;
      Axes more = out[i];
      more.push_back(a);
      out.push_back(more);
    }
  return out;
}

bool overlap(const Axes& a, const Axes& b) {
  for (int8_t x : a)
    for (int8_t y : b)
      if (x == y) return true;
  return false;
}

// The splits of a dim over these axes: in blocks, head to tail, and as a flattened pair of segments.
std::vector<DimSpec> ways(const Mesh& mesh, int64_t extent, const Axes& axes) {
  std::vector<DimSpec> out{dist::one_segment(extent, axes)};
  if (axes.empty()) return out;
  if (extent % (2 * mesh.parts(axes)) == 0) out.push_back(dist::one_segment(extent, axes, SegLayout::kHeadTail));
  for (int64_t major : {2, 4}) {
    if (extent % major != 0 || extent == major) continue;
    for (size_t first = 0; first < axes.size();
         ++first) {  // these axes split the major segment, the others the minor segment
      Axes a, b;
      for (size_t i = 0; i < axes.size(); ++i) (i < first ? a : b).push_back(axes[i]);
      DimSpec d;
      d.push_back({major, a});
      d.push_back({extent / major, b});
      out.push_back(dist::canonical(mesh, d));
    }
  }
  return out;
}

}  // namespace

std::vector<Spec> specs(const Mesh& mesh, const Shape& shape, bool maxima) {
  std::vector<Spec> out;
  const auto all = choices(mesh.num_axes());
  for (const Axes& a : all)
    for (const Axes& b : all) {
      if (overlap(a, b)) continue;
      for (const DimSpec& first : ways(mesh, shape[0], a))
        for (const DimSpec& second : ways(mesh, shape[1], b)) {
          Spec s;
          s.dims.push_back(first);
          s.dims.push_back(second);
          for (uint32_t pending = 0; pending < (maxima ? 2u : 1u) << mesh.num_axes(); ++pending) {
            Spec with = s;
            const ReduceOp op = pending >> mesh.num_axes() ? ReduceOp::kMax : ReduceOp::kSum;
            bool fits = true;
            for (int axis = 0; axis < mesh.num_axes(); ++axis) {
              if (!(pending >> axis & 1)) continue;
              fits &= !s.splits(axis);
              with.add_pending(axis, op);
            }
            if (fits && std::find(out.begin(), out.end(), with) == out.end()) out.push_back(with);
          }
        }
    }
  return out;
}

Tensor whole_part(const Mesh& mesh, const Spec& spec, const Tensor& whole, int rank) {
  Spec rest = spec;
  rest.pending = {};
  const Tensor own = dist::shard(mesh, rest, whole, rank).to(Device::cpu());
  if (spec.pending.empty()) return own;
  Axes axes;
  for (const dist::Pending& p : spec.pending) axes.push_back(p.axis);
  const int64_t n = mesh.parts(axes), at = mesh.coordinate(rank, axes);
  if (spec.pending[0].op == ReduceOp::kMax) return own - static_cast<double>(n - 1 - at);
  // Terms are 1, 2, ... times the value, and a last term that makes the sum equal the value.
  return own * static_cast<double>(at + 1 < n ? at + 1 : 1 - n * (n - 1) / 2);
}

}  // namespace weft::testing
