#include "framework/cuda/transfer/copy_plan.h"

#include <cstring>

namespace weft::cuda {

NestedCopy plan_copy(const Shape& shape, const Shape& from_strides, const Shape& to_strides, int64_t size) {
  NestedCopy plan;
  plan.run = size;
  SmallVec<CopyLoop, 4> reversed;  // innermost first
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    if (shape[d] == 0) return {};
    if (shape[d] == 1) continue;
    CopyLoop loop{shape[d], from_strides[d] * size, to_strides[d] * size};
    if (reversed.empty() && loop.from == plan.run && loop.to == plan.run) {
      plan.run *= loop.extent;
    } else if (!reversed.empty() && loop.from == reversed.back().from * reversed.back().extent &&
               loop.to == reversed.back().to * reversed.back().extent) {
      reversed.back().extent *= loop.extent;
    } else {
      reversed.push_back(loop);
    }
  }
  for (int i = static_cast<int>(reversed.size()) - 1; i >= 0; --i) plan.loops.push_back(reversed[i]);
  return plan;
}

void for_each_run(const NestedCopy& plan, int inner_loops, const std::function<void(int64_t, int64_t)>& copy) {
  if (plan.run == 0) return;
  const int n = static_cast<int>(plan.loops.size()) - inner_loops;
  SmallVec<int64_t, 4> index;
  for (int i = 0; i < n; ++i) index.push_back(0);
  int64_t from = 0, to = 0;
  for (;;) {
    copy(from, to);
    int d = n - 1;
    for (; d >= 0; --d) {
      const CopyLoop& l = plan.loops[d];
      from += l.from;
      to += l.to;
      if (++index[d] < l.extent) break;
      from -= l.from * l.extent;
      to -= l.to * l.extent;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

void copy_on_host(const NestedCopy& plan, const void* from, void* to) {
  if (plan.run == 0) return;
  const int inner = plan.loops.empty() ? 0 : 1;
  const CopyLoop loop = inner ? plan.loops[plan.loops.size() - 1] : CopyLoop{};
  auto* f = static_cast<const char*>(from);
  auto* t = static_cast<char*>(to);
  for_each_run(plan, inner, [&](int64_t a, int64_t b) {
    switch (plan.run) {  // single elements
      case 1:
        for (int64_t i = 0; i < loop.extent; ++i) t[b + i * loop.to] = f[a + i * loop.from];
        return;
      case 2:
        for (int64_t i = 0; i < loop.extent; ++i) std::memcpy(t + b + i * loop.to, f + a + i * loop.from, 2);
        return;
      case 4:
        for (int64_t i = 0; i < loop.extent; ++i) std::memcpy(t + b + i * loop.to, f + a + i * loop.from, 4);
        return;
      case 8:
        for (int64_t i = 0; i < loop.extent; ++i) std::memcpy(t + b + i * loop.to, f + a + i * loop.from, 8);
        return;
      default:
        for (int64_t i = 0; i < loop.extent; ++i) std::memcpy(t + b + i * loop.to, f + a + i * loop.from, plan.run);
    }
  });
}

ByteSpan span_of(const StridedView& view) {
  if (view.numel() == 0) return {};
  const int64_t size = itemsize(view.dtype);
  ByteSpan s{0, size};
  for (int d = 0; d < view.shape.size(); ++d) {
    const int64_t reach = (view.shape[d] - 1) * view.strides[d] * size;
    (reach < 0 ? s.begin : s.end) += reach;
  }
  return s;
}

}  // namespace weft::cuda
