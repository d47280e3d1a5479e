#include "ops/core/dot_product.h"

#include <algorithm>

#include "ops/kernels/kernels.h"

namespace weft::internal {
Shape free_dims(int rank, const Shape& batch, const Shape& contract) {
  auto contains = [](const Shape& dims, int d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); };
  Shape r;
  for (int d = 0; d < rank; ++d)
    if (!contains(batch, d) && !contains(contract, d)) r.push_back(d);
  return r;
}

DotProduct::Merged DotProduct::merge(const StridedView& in, const Shape& first, const Shape& second,
                                     const Shape& third) {
  Merged m;
  m.view = {in.data, in.dtype, {}, {}};
  for (const Shape* group : {&first, &second, &third}) {
    int64_t extent = 1, stride = 0;
    bool started = false;
    for (int64_t d : *group) m.dims.push_back(d);
    for (int k = group->size() - 1; k >= 0; --k) {
      const int d = static_cast<int>((*group)[k]);
      if (in.shape[d] == 1) continue;
      if (started && in.strides[d] != stride * extent) m.copy = true;
      if (!started) stride = in.strides[d];
      started = true;
      extent *= in.shape[d];
    }
    m.view.shape.push_back(extent);
    m.view.strides.push_back(stride);
  }
  if (m.view.numel() == 0) m.copy = false;
  return m;
}

StridedView DotProduct::laid_out(const StridedView& in, const Merged& m, void* scratch) {
  StridedView v = m.view;
  v.data = in.data;
  if (!m.copy) return v;
  StridedView from{in.data, in.dtype, {}, {}};
  for (int64_t d : m.dims) {
    from.shape.push_back(in.shape[static_cast<int>(d)]);
    from.strides.push_back(in.strides[static_cast<int>(d)]);
  }
  kernels::cast_copy(from, {scratch, in.dtype, from.shape, contiguous_strides(from.shape)});
  v.data = scratch;
  v.strides = contiguous_strides(v.shape);
  return v;
}

DotProduct::DotProduct(const Attrs& attrs, std::span<const StridedView> in) {
  const Shape a_batch = attrs.ints("a_batch"), b_batch = attrs.ints("b_batch"), a_contract = attrs.ints("a_contract"),
              b_contract = attrs.ints("b_contract");
  a_ = merge(in[0], a_batch, free_dims(in[0].shape.size(), a_batch, a_contract), a_contract);
  b_ = merge(in[1], b_batch, b_contract, free_dims(in[1].shape.size(), b_batch, b_contract));
}

DotProduct::Operands DotProduct::operands(const StridedView& a, const StridedView& b, void* scratch) const {
  return {laid_out(a, a_, scratch), laid_out(b, b_, static_cast<char*>(scratch) + a_.bytes())};
}

}  // namespace weft::internal
