#include "ops/composite/indexing.h"

#include <limits>

#include "ops/core/creation.h"
#include "ops/core/fits.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft {

using namespace internal;

namespace internal {

Tensor in_range(const Tensor& positions, int64_t n, const char* op) {
  const Tensor all = arange(n, {.dtype = kInt64, .device = positions.device()});
  const Tensor at = look_up(index_select_op, all, 0, flatten(positions), str_cat(op, ": an index is not a position"));
  return reshape(at, positions.shape());
}

Tensor source_for(const Tensor& x, const Arg& source, const char* op) {
  if (source.is_tensor()) {
    const Tensor& s = tensor_of(source, op);
    WEFT_CHECK(s.dtype() == x.dtype(), op, ": x and the values are ", x.dtype(), " and ", s.dtype(),
               "; need one dtype");
    return s;
  }
  WEFT_CHECK(source.kind() != Arg::kFloat || is_floating(x.dtype()), op, ": the value is ", source.number(),
             " and x is ", x.type(), "; need an integer, or x.to(f32)");
  check_fits(op, source, x.dtype());
  return full({}, source, {.dtype = x.dtype(), .device = x.device()});
}

}  // namespace internal

namespace {

// x after positions, slices and None, and the tensors that index its dims (undefined: the dim stays).
struct IndexedParts {
  Tensor x;
  std::vector<Tensor> at;
};

int dims_taken(const TensorIndex& i) {
  if (i.kind() != TensorIndex::kTensor) return i.kind() == TensorIndex::kPosition || i.kind() == TensorIndex::kSlice;
  return i.tensor().dtype() == kBool ? i.tensor().dim() : 1;
}

// A mask is one index for each of its dims.
void add_mask(IndexedParts& p, const Tensor& mask, const char* op) {
  const int d = static_cast<int>(p.at.size());
  if (mask.dim() == 0) {  // a dim of extent 1 or 0
    p.x = unsqueeze(p.x, d);
    p.at.push_back(flatten(nonzero(reshape(mask, {1}))));
    return;
  }
  for (int k = 0; k < mask.dim(); ++k)
    WEFT_CHECK(mask.shape()[k] == p.x.shape()[d + k], op, ": a mask has shape ", mask.shape(), " for dims ", d, " to ",
               d + mask.dim() - 1, " of ", p.x.shape(), "; need equal extents");
  require_values(mask, op, "where(mask, x, 0), which keeps x's shape");
  const Tensor positions = nonzero(mask);
  for (int k = 0; k < mask.dim(); ++k) p.at.push_back(select(positions, 1, k));
}

IndexedParts parts_of(const Tensor& x, const std::vector<TensorIndex>& at, const char* op) {
  int taken = 0, ellipses = 0;
  for (const TensorIndex& i : at) {
    if (i.kind() == TensorIndex::kTensor)
      WEFT_CHECK_AS(kFailedPrecondition, i.tensor().defined(), op,
                    ": an index is an undefined tensor; need Slice() for a whole dim");
    taken += dims_taken(i);
    ellipses += i.kind() == TensorIndex::kEllipsis;
  }
  WEFT_CHECK(taken <= x.dim() && ellipses <= 1, op, ": indices of ", taken, " dims",
             ellipses > 1 ? ", two Ellipsis," : "", " for ", x.shape(), "; need at most ", x.dim(),
             " and one Ellipsis");
  IndexedParts p{x, {}};
  for (const TensorIndex& i : at) {
    const int d = static_cast<int>(p.at.size());
    switch (i.kind()) {
      case TensorIndex::kPosition:
        p.x = select(p.x, d, i.position());
        break;
      case TensorIndex::kSlice: {
        const Slice& s = i.slice();
        p.x = slice(p.x, d, s.start.at.value_or(0), s.stop.at.value_or(std::numeric_limits<int64_t>::max()),
                    s.step.at.value_or(1));
        p.at.push_back({});
        break;
      }
      case TensorIndex::kEllipsis:
        p.at.insert(p.at.end(), static_cast<size_t>(x.dim() - taken), Tensor());
        break;
      case TensorIndex::kNone:
        p.x = unsqueeze(p.x, d);
        p.at.push_back({});
        break;
      case TensorIndex::kTensor:
        if (i.tensor().dtype() == kBool) {
          add_mask(p, i.tensor(), op);
        } else {
          p.at.push_back(from_front(i.tensor(), p.x.shape()[d], op));
        }
    }
  }
  p.at.resize(static_cast<size_t>(p.x.dim()));
  return p;
}

// Looks up one or more dims: they are merged into one, at the place of the first if they are neighbours, else in front.
Tensor looked_up(const IndexedParts& p, const char* op) {
  Shape common;
  int first = -1, last = -1, count = 0;
  for (int d = 0; d < p.x.dim(); ++d) {
    const Tensor& at = p.at[static_cast<size_t>(d)];
    if (!at.defined()) continue;
    if (first < 0) first = d;
    last = d;
    ++count;
    common = broadcast_shapes(common, at.shape(), op);
  }
  if (count == 0) return p.x;
  const int place = last - first + 1 == count ? first : 0;
  // The order of the dims is: dims before the place, indexed dims, other dims.
  Shape dims, merged, result;
  int64_t extent = 1;
  auto indexed = [&](int d) { return p.at[static_cast<size_t>(d)].defined(); };
  for (int d = 0; d < place; ++d) dims.push_back(d);
  for (int d = first; d <= last; ++d)
    if (indexed(d)) dims.push_back(d), extent *= p.x.shape()[d];
  for (int d = place; d < p.x.dim(); ++d)
    if (!indexed(d)) dims.push_back(d);
  Tensor flat;
  for (int k = 0; k < dims.size(); ++k) {
    const int d = static_cast<int>(dims[k]);
    const int64_t n = p.x.shape()[d];
    if (k == place) {
      merged.push_back(extent);
      for (int64_t m : common) result.push_back(m);
    }
    if (k < place || k >= place + count) {
      merged.push_back(n);
      result.push_back(n);
      continue;
    }
    const Tensor at = count == 1 ? p.at[static_cast<size_t>(d)] : in_range(p.at[static_cast<size_t>(d)], n, op);
    flat = flat.defined() ? flat * n + at : at;
  }
  const Tensor rows = reshape(permute(p.x, dims), merged);
  return reshape(look_up(index_select_op, rows, place, flatten(broadcast_to(flat, common)),
                         str_cat(op, ": an index is not a position")),
                 result);
}

bool is_mask(const std::vector<TensorIndex>& at) {
  return at.size() == 1 && at[0].kind() == TensorIndex::kTensor && at[0].tensor().defined() &&
         at[0].tensor().dtype() == kBool;
}

}  // namespace

Tensor index(const Arg& arg, const std::vector<TensorIndex>& at) {
  LineScope here(arg.line());
  return looked_up(parts_of(tensor_of(arg, "index"), at, "index"), "index");
}

Tensor index_put(const Arg& arg, const std::vector<TensorIndex>& at, const Arg& values, bool accumulate) {
  const FirstOperand x(arg, "index_put");
  const Tensor v = source_for(x, values, "index_put");
  if (is_mask(at) && v.numel() == 1) {
    Tensor mask = at[0].tensor();
    Shape begin;
    for (int d = 0; d < std::min(mask.dim(), x.dim()); ++d) begin.push_back(x.shape()[d]);
    WEFT_CHECK(mask.shape() == begin, "index_put: a mask has shape ", mask.shape(), " for x ", x.shape(),
               "; need the extents of x's first dims");
    while (begin.size() < x.dim()) begin.push_back(1);
    mask = reshape(mask, begin);
    const Tensor one = reshape(v, {});
    return where(mask, accumulate ? x + one : one, x);
  }
  // The positions of the elements in the flattened x: the same look-up in a tensor of positions.
  const Tensor all = arange(x.numel(), {.dtype = kInt64, .device = x.device()});
  const Tensor to = looked_up(parts_of(reshape(all, x.shape()), at, "index_put"), "index_put");
  WEFT_CHECK(broadcast_shapes(v.shape(), to.shape(), "index_put") == to.shape(), "index_put: values have shape ",
             v.shape(), " for elements of shape ", to.shape(), "; need values that broadcast to them");
  const Tensor from = flatten(broadcast_to(v, to.shape()));
  const Tensor y =
      accumulate ? index_add(flatten(x), 0, flatten(to), from) : index_copy(flatten(x), 0, flatten(to), from);
  return reshape(y, x.shape());
}

}  // namespace weft
