// Gathers of types that the loop IR does not support (small integers, 8-bit floats): one thread per element.
#include "ops/core/indexing/index.h"

#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"

namespace weft::cuda {
namespace {

int dim_of(const OperationRequest& r) { return static_cast<int>(r.attrs.i("dim")); }

// ---- gather, index_select ----

constexpr std::string_view kGather = R"(
W_KERNEL {
  W_EACH(I, i, p.n);
  const I at = (I)checked((int64)p.index[offset_of<kRank>(i, p.shape, p.of_index)], p.limit,
                             i / p.inner % p.indices, p.bad);
  p.y[offset_of<kRank>(i, p.shape, p.to)] = p.x[offset_of<kRank>(i, p.shape, p.from) + at * p.along];
}
)";

// Element i of the result uses index `i / inner % indices`.
bool gather(const OperationRequest& r, Launches& to, Shape of_index, int64_t inner, int64_t indices) {
  const StridedView &x = r.in[0], &index = r.in[1], &y = r.out[0];
  const int dim = dim_of(r);
  if (y.numel() == 0) return true;
  to.set_checks_indices();
  if (x.shape[dim] == 0) {
    add_bad(to, index, 1);
    return true;
  }
  Shape from = x.strides;
  from[dim] = 0;
  const Walk w(y.shape, {from, of_index, y.strides});
  Text t("gather", w.wide() || is_wide(x));
  t.type("T", bytes_type(static_cast<int>(itemsize(x.dtype)))).type("X", index.dtype);
  t.functions(kOffsetFunctions).functions(kCheckFunctions);
  t.address("const T* x", operand_address(0))
      .address("const X* index", operand_address(1))
      .address("T* y", result_address(0))
      .bad();
  t.whole("limit", x.shape[dim]).index("along", x.strides[dim]);
  t.whole("inner", inner).whole("indices", indices);
  w.declare(t, {"from", "of_index", "to"});
  to.add(t.step(kGather, blocks_for(w.n)));
  return true;
}

bool make_gather(const OperationRequest& r, Launches& to) { return gather(r, to, r.in[1].strides, 1, r.in[1].numel()); }
bool make_index_select(const OperationRequest& r, Launches& to) {
  Shape of_index = Shape::filled(r.out[0].shape.size(), 0);
  of_index[dim_of(r)] = r.in[1].strides[0];
  return gather(r, to, of_index, elements_behind(r.out[0], dim_of(r)), r.in[1].numel());
}

}  // namespace

std::span<const MakerRow> index_makers() {
  static const MakerRow rows[] = {{&gather_op, make_gather}, {&index_select_op, make_index_select}};
  return rows;
}

}  // namespace weft::cuda
