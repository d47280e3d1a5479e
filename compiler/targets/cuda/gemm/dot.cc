#include "compiler/targets/cuda/gemm/dot.h"

#include "ops/core/products/dot_product.h"

namespace weft::cuda {

// The dims by groups; free dims keep their order.
static Shape order_of(int rank, const Shape& batch, const Shape& contract, bool contract_last) {
  const Shape free = weft::internal::free_dims(rank, batch, contract);
  Shape order = batch;
  for (const Shape* group : {contract_last ? &free : &contract, contract_last ? &contract : &free})
    for (int64_t d : *group) order.push_back(d);
  return order;
}

Dot plan_dot(const Attrs& attrs, std::span<const StridedView> in, DType out) {
  const internal::DotProduct p(attrs, in);
  Dot d;
  MatmulShape& s = d.product;
  s.in = in[0].dtype;
  s.out = out;
  s.batch = p.batch();
  s.m = p.m();
  s.n = p.n();
  s.k = p.k();
  s.out_row = s.n;
  s.out_batch = s.m * s.n;
  auto place = [&](const StridedView& v, DotOperand& o, MatrixStrides& strides, int64_t rows, int64_t cols, bool merged,
                   const Shape& as_merged) {
    if (merged) strides = {as_merged[0], as_merged[1], as_merged[2]};
    o.copy = d.has_work() && (!merged || strides.batch < 0 || !readable_in_place(rows, cols, strides));
    if (o.copy) {
      strides = {rows * cols, cols, 1};
      o.bytes = s.batch * rows * cols * itemsize(v.dtype);
    }
    if (s.batch == 1) strides.batch = 0;
  };
  d.a.order = order_of(in[0].shape.size(), attrs.ints("a_batch"), attrs.ints("a_contract"), true);
  d.b.order = order_of(in[1].shape.size(), attrs.ints("b_batch"), attrs.ints("b_contract"), false);
  place(in[0], d.a, s.a, s.m, s.k, !p.copies_a(), p.a_strides());
  place(in[1], d.b, s.b, s.k, s.n, !p.copies_b(), p.b_strides());
  return d;
}

}  // namespace weft::cuda
