// Ops that move elements: materialised views, pad, concat, blocks at places that only the device knows.
#include <cmath>

#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/products/window.h"

namespace weft::cuda {
namespace {

// Views: a copy of the viewed elements.
bool make_view(const OperationRequest& r, Launches& to) {
  if (r.out[0].numel() == 0) return true;
  StridedView x = r.in[0], y = r.out[0];
  if (&r.op != &reshape_op && &r.op != &contiguous_op) {
    int64_t offset = 0;
    Shape strides;
    const TensorType type{y.dtype, {}, y.shape};
    if (!r.op.view(r.attrs, x, type, &strides, &offset)) return false;
    x.shape = y.shape;
    x.strides = strides;
    add_copy(to, x, operand_address(0, offset * itemsize(x.dtype)), y, result_address(0), r.alignment);
    return true;
  }
  // reshape and contiguous: elements keep their row-major order.
  if (!(x.shape == y.shape)) {
    if (!y.contiguous()) return false;
    y.shape = x.shape;
    y.strides = contiguous_strides(x.shape);
  }
  add_copy(to, x, operand_address(0), y, result_address(0), r.alignment);
  return true;
}

// One thread per element (or vector) of the result: from inside the operand, or padding.
constexpr std::string_view kPad = R"(
W_KERNEL {
  W_EACH(I, i, p.n);
  I rest = i, from = 0, to = 0;
  bool inside = true;
#pragma unroll
  for (int d = kRank - 1; d >= 0; --d) {
    const I at = d > 0 ? rest % p.shape[d] : rest;
    if (d > 0) rest /= p.shape[d];
    to += at * p.to[d];
    const I k = at - p.lo[d], every = p.every[d];
    const I j = every == 1 ? k : k / every;
    inside = inside && k >= 0 && j < p.extent[d] && (every == 1 || k % every == 0);
    from += j * p.from[d];
  }
  p.y[to] = inside ? p.x[from] : outside(p);
}
)";

bool make_pad(const OperationRequest& r, Launches& to) {
  const StridedView &x = r.in[0], &y = r.out[0];
  const double value = r.attrs.f("value");
  if (y.numel() == 0) return true;
  if (x.numel() == 0) {
    add_fill(to, y, result_address(0), value);
    return true;
  }
  const int rank = y.shape.size();
  const Shape& lo = r.attrs.ints("lo");
  const Shape interior = r.attrs.has("interior") ? r.attrs.ints("interior") : Shape::filled(rank, 0);
  // Rows that are complete in both views move in vectors.
  Shape shape = y.shape, from = x.strides, at = y.strides, low = lo, extent = x.shape, every = interior;
  for (int64_t& e : every) ++e;
  // Dims without padding merge with the dim around them.
  for (int d = rank - 1; d > 0; --d) {
    const bool whole = shape[d] == extent[d] && every[d] == 1;
    if (!whole || every[d - 1] != 1 || from[d - 1] != from[d] * shape[d] || at[d - 1] != at[d] * shape[d]) continue;
    shape[d - 1] *= shape[d];
    low[d - 1] *= shape[d];
    extent[d - 1] *= shape[d];
    from[d - 1] = from[d];
    at[d - 1] = at[d];
    for (Shape* s : {&shape, &from, &at, &low, &extent, &every}) s->erase(d);
  }
  if (shape.empty())
    for (Shape* s : {&shape, &extent, &every}) s->push_back(1);
  if (low.empty())
    for (Shape* s : {&low, &from, &at}) s->push_back(0);
  const int last = shape.size() - 1;
  const int64_t element = itemsize(x.dtype);
  int bytes = static_cast<int>(element);
  const bool zero = value == 0 && !std::signbit(value);
  for (int wide = std::min(r.alignment, 16); wide > bytes && zero; wide /= 2) {
    bool fits = every[last] == 1 && low[last] * element % wide == 0 && extent[last] * element % wide == 0 &&
                vector_bytes(element, shape, {at}, {}, wide) == wide &&
                (last == 0 ? from[0] == 1 : vector_bytes(element, extent, {from}, {}, wide) == wide);
    if (fits) bytes = wide;
  }
  const int64_t each = bytes / element;
  for (int64_t* v : {&shape[last], &low[last], &extent[last]}) *v /= each;
  for (int d = 0; d < last; ++d) {
    from[d] /= each;
    at[d] /= each;
  }
  Text t("pad", is_wide(x) || is_wide(y));
  std::string outside = "struct P;\nstatic inline T outside(const P& p);\n";
  std::string body;
  if (each > 1) {
    t.type("T", bytes_type(bytes)).functions(kWriteFunctions);
    body = bytes == 16 ? "static inline T outside(const P&) { return make_uint4(0, 0, 0, 0); }\n"
                       : "static inline T outside(const P&) { return 0; }\n";
  } else {
    t.type("T", x.dtype).functions(kWriteFunctions);
    body = "static inline T outside(const P& p) {\n  T v;\n  write(v, p.value);\n  return v;\n}\n";
  }
  t.constant("kRank", shape.size()).address("const T* x", operand_address(0)).address("T* y", result_address(0));
  t.real("value", value).index("n", shape.numel());
  auto field = [&](const char* name, const Shape& s) { t.indices(str_cat(name, "[kRank]"), {s.begin(), s.end()}); };
  field("shape", shape);
  field("to", at);
  field("lo", low);
  field("every", every);
  field("extent", extent);
  field("from", from);
  to.add(t.step(body + std::string(kPad), blocks_for(shape.numel())));
  return true;
}

bool make_concat(const OperationRequest& r, Launches& to) {
  const int dim = static_cast<int>(r.attrs.i("dim"));
  StridedView piece = r.out[0];
  int64_t at = 0;
  for (size_t k = 0; k < r.in.size(); ++k) {
    piece.shape[dim] = r.in[k].shape[dim];
    add_copy(to, r.in[k], operand_address(static_cast<int>(k)), piece,
             result_address(0, at * piece.strides[dim] * itemsize(piece.dtype)), r.alignment);
    at += r.in[k].shape[dim];
  }
  return true;
}

// ---- blocks at starts that the device knows ----

// In units of kEach elements: the moving side starts at `starts`, each of which must let the block fit.
constexpr std::string_view kBlock = R"(
static inline int64 block_offset(const P& p) {
  int64 at = 0;
#pragma unroll
  for (int d = 0; d < kStarts; ++d) {
    const int64 s = p.is_long[d] ? *(const int64*)p.start[d] : (int64)*(const int*)p.start[d];
    at += checked(s, p.places[d], 0, p.bad, d) * p.step[d];
  }
  return at / kEach;
}
W_KERNEL {
  const int64 moved = block_offset(p);
  W_EACH(I, i, p.n);
  const I from = offset_of<kRank>(i, p.shape, p.from), to = offset_of<kRank>(i, p.shape, p.to);
  p.y[kMovesTo ? to + moved : to] = p.x[kMovesTo ? from : from + moved];
}
)";

// y = x over the block's shape. `whole` is the tensor that contains the block: the result if `into`, else the operand.
void add_block(const OperationRequest& r, Launches& to, const StridedView& x, int in, const StridedView& y,
               const StridedView& whole, std::span<const StridedView> starts, size_t first, bool into) {
  const Shape& block = into ? x.shape : y.shape;
  to.set_checks_indices();
  const bool empty = block.numel() == 0;
  Walk w(empty ? Shape{1} : block, {empty ? Shape{1} : x.strides, empty ? Shape{1} : y.strides});
  const int64_t element = itemsize(x.dtype);
  int bytes = static_cast<int>(element);
  for (int wide = empty ? 1 : std::min(r.alignment, 16); wide > element; wide /= 2) {
    bool fits = vector_bytes(element, w.shape, {w.strides[0], w.strides[1]}, {}, wide) == wide;
    for (int d = 0; d < block.size(); ++d)
      fits = fits && (whole.shape[d] == block[d] || whole.strides[d] * element % wide == 0);
    if (!fits) continue;
    bytes = wide;
    break;
  }
  const int64_t each = bytes / element;
  const int last = w.rank() - 1;
  w.shape[last] /= each;
  w.n = empty ? 0 : w.n / each;
  for (Shape& s : w.strides)
    for (int d = 0; d < last; ++d) s[d] /= each;
  Text t("block", w.wide());
  t.type("T", bytes_type(bytes)).constant("kStarts", block.size()).constant("kMovesTo", into);
  t.constant("kEach", each).functions(kOffsetFunctions).functions(kCheckFunctions);
  t.address("const T* x", operand_address(in)).address("T* y", result_address(0)).bad();
  const int rank = block.size();
  if (rank > 0) {
    for (int d = 0; d < rank; ++d)
      t.address(d == 0 ? "const void* start[kStarts]" : "", operand_address(static_cast<int>(first) + d));
    for (int d = 0; d < rank; ++d) t.whole(d == 0 ? "places[kStarts]" : "", whole.shape[d] - block[d] + 1);
    for (int d = 0; d < rank; ++d) t.whole(d == 0 ? "step[kStarts]" : "", whole.strides[d]);
    for (int d = 0; d < rank; ++d)
      t.whole(d == 0 ? "is_long[kStarts]" : "", starts[static_cast<size_t>(d)].dtype == kInt64);
  }
  w.declare(t, {"from", "to"});
  std::string body(kBlock);
  if (rank == 0) body.replace(body.find("#pragma"), body.find("  return at") - body.find("#pragma"), "");
  to.add(t.step(body, std::max<int64_t>(1, blocks_for(w.n))));
}

bool make_dynamic_slice(const OperationRequest& r, Launches& to) {
  add_block(r, to, r.in[0], 0, r.out[0], r.in[0], r.in.subspan(1), 1, false);
  return true;
}

bool make_dynamic_update_slice(const OperationRequest& r, Launches& to) {
  add_copy_unless_same(r, to);
  add_block(r, to, r.in[1], 1, r.out[0], r.out[0], r.in.subspan(2), 2, true);
  return true;
}

}  // namespace

std::span<const MakerRow> view_makers() {
  static const MakerRow rows[] = {{&reshape_op, make_view},
                                  {&permute_op, make_view},
                                  {&broadcast_op, make_view},
                                  {&slice_op, make_view},
                                  {&window_op, make_view},
                                  {&contiguous_op, make_view},
                                  {&pad_op, make_pad},
                                  {&concat_op, make_concat},
                                  {&dynamic_slice_op, make_dynamic_slice},
                                  {&dynamic_update_slice_op, make_dynamic_update_slice}};
  return rows;
}

}  // namespace weft::cuda
