#include "ops/composite/math/matrix.h"

#include <algorithm>
#include <optional>

#include "ops/composite/precision.h"
#include "ops/core/products/dot.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using namespace internal;

namespace {

// The two different dims of a matrix of a diagonal, in a tensor of `rank` dims.
struct Plane {
  int first, second;
  Plane(int64_t dim1, int64_t dim2, int rank, const char* op)
      : first(normalize_dim(dim1, rank, op)), second(normalize_dim(dim2, rank, op)) {
    WEFT_CHECK(first != second, op, ": dims ", dim1, " and ", dim2, " are the same; need two dims");
  }
  // The other dims of a tensor in order, then these two.
  Shape last(int rank) const {
    Shape order;
    for (int d = 0; d < rank; ++d)
      if (d != first && d != second) order.push_back(d);
    order.push_back(first);
    order.push_back(second);
    return order;
  }
};

// dot_general without Autocast, for products that are not in torch.autocast's list: their operands keep their dtypes.
Tensor unlisted_product(const Tensor& a, const Tensor& b, const DotDims& dims) {
  const Autocast off(std::nullopt);
  return dot_general(a, b, dims);
}

Tensor vector_product(const Arg& x, const Arg& y, const char* op) {
  LineScope line(x.line());
  const Tensor &a = tensor_of(x, op), &b = tensor_of(y, op);
  WEFT_CHECK(a.dim() == 1 && b.dim() == 1 && a.size(0) == b.size(0), op, ": got ", a.shape(), " and ", b.shape(),
             "; need two vectors of equal length");
  return unlisted_product(a, b, {{}, {}, {0}, {0}});
}

}  // namespace

Tensor diagonal(const Arg& arg, int64_t offset, int64_t dim1, int64_t dim2) {
  const FirstOperand x(arg, "diagonal");
  WEFT_CHECK(x.dim() >= 2, "diagonal: got ", x.shape(), "; need two dims or more");
  const Plane plane(dim1, dim2, x.dim(), "diagonal");
  const Tensor m = permute(x, plane.last(x.dim()));
  const int64_t rows = m.size(-2), columns = m.size(-1);
  // The offset is bounded first, so that nothing overflows.
  const int64_t down = std::clamp<int64_t>(offset, -rows, 0), right = std::clamp<int64_t>(offset, 0, columns);
  const int64_t count = std::max<int64_t>(std::min(rows + down, columns - right), 0);
  Shape flat(std::span<const int64_t>(m.shape()).first(m.dim() - 2));
  flat.push_back(saturating_mul(rows, columns));
  const int64_t begin = -down * columns + right;
  return slice(reshape(m, flat), -1, begin, count > 0 ? begin + (count - 1) * (columns + 1) + 1 : begin, columns + 1);
}

Tensor diag_embed(const Arg& arg, int64_t offset, int64_t dim1, int64_t dim2) {
  const FirstOperand x(arg, "diag_embed");
  WEFT_CHECK(x.dim() >= 1, "diag_embed: got a scalar; need a dim");
  const int rank = x.dim() + 1;
  const Plane plane(dim1, dim2, rank, "diag_embed");
  const int64_t shift = std::max(offset, -offset), n = saturating_add(x.size(-1), shift);
  const TensorOptions places{.dtype = kInt64, .device = x.device()};
  const Tensor at = arange(n, places), on = eq(unsqueeze(at, -1) + offset, at);
  // The element of row i is x[i]; for a negative offset, the element of column j is x[j].
  const Tensor m = where(on, unsqueeze(pad(x, {0, shift}), offset >= 0 ? -1 : -2),
                         full({}, 0, {.dtype = x.dtype(), .device = x.device()}));
  return permute(m, inverse_order(plane.last(rank)));
}

Tensor diag(const Arg& arg, int64_t offset) {
  const FirstOperand x(arg, "diag");
  WEFT_CHECK(x.dim() == 1 || x.dim() == 2, "diag: got ", x.shape(), "; need a vector or a matrix");
  return x.dim() == 1 ? diag_embed(x, offset) : diagonal(x, offset);
}

Tensor trace(const Arg& arg) {
  const FirstOperand x(arg, "trace");
  WEFT_CHECK(x.dim() == 2, "trace: got ", x.shape(), "; need a matrix");
  return sum(diagonal(x));
}

Tensor dot(const Arg& x, const Arg& y) { return vector_product(x, y, "dot"); }
Tensor vdot(const Arg& x, const Arg& y) { return vector_product(x, y, "vdot"); }

Tensor vecdot(const Arg& x, const Arg& y, int64_t dim) {
  LineScope line(x.line());
  const OperandPair p = common(x, y, "vecdot");
  WEFT_CHECK(is_floating(p.a.dtype()), "vecdot: operands are ", p.a.dtype(), "; need a floating-point dtype");
  const int d = normalize_dim(dim, p.a.dim(), "vecdot");
  return sum(widened(p.a) * widened(p.b), d).to(p.a.dtype());
}

Tensor inner(const Arg& x, const Arg& y) {
  LineScope line(x.line());
  const Tensor &a = tensor_of(x, "inner"), &b = tensor_of(y, "inner");
  if (a.dim() == 0 || b.dim() == 0) return a * b;
  WEFT_CHECK(a.size(-1) == b.size(-1), "inner: got ", a.shape(), " and ", b.shape(), "; need equal last dims");
  return unlisted_product(a, b, {{}, {}, {a.dim() - 1}, {b.dim() - 1}});
}

Tensor outer(const Arg& x, const Arg& y) {
  LineScope line(x.line());
  const Tensor &a = tensor_of(x, "outer"), &b = tensor_of(y, "outer");
  WEFT_CHECK(a.dim() == 1 && b.dim() == 1, "outer: got ", a.shape(), " and ", b.shape(), "; need two vectors");
  return unsqueeze(a, 1) * unsqueeze(b, 0);
}

static void check_matrix_vector(const Tensor& a, const Tensor& v, const char* op) {
  WEFT_CHECK(a.dim() == 2 && v.dim() == 1 && a.size(1) == v.size(0), op, ": got ", a.shape(), " x ", v.shape(),
             "; need a matrix [N, M] and a vector [M]");
}

Tensor mv(const Arg& x, const Arg& y) {
  LineScope line(x.line());
  const Tensor &a = tensor_of(x, "mv"), &v = tensor_of(y, "mv");
  check_matrix_vector(a, v, "mv");
  return dot_general(a, v, {{}, {}, {1}, {0}});
}

Tensor tensordot(const Arg& x, const Arg& y, int64_t dims) {
  LineScope line(x.line());
  const Tensor &a = tensor_of(x, "tensordot"), &b = tensor_of(y, "tensordot");
  WEFT_CHECK(dims >= 0 && dims <= a.dim() && dims <= b.dim(), "tensordot: ", dims, " dims of ", a.shape(), " and ",
             b.shape(), "; need 0 to the lower number of dims");
  Shape of_a, of_b;
  for (int64_t i = 0; i < dims; ++i) of_a.push_back(a.dim() - dims + i), of_b.push_back(i);
  return tensordot(a, b, of_a, of_b);
}

Tensor tensordot(const Arg& x, const Arg& y, const Shape& a_dims, const Shape& b_dims) {
  LineScope line(x.line());
  const Tensor &a = tensor_of(x, "tensordot"), &b = tensor_of(y, "tensordot");
  WEFT_CHECK(a_dims.size() == b_dims.size(), "tensordot: dims ", a_dims, " and ", b_dims, "; need equal numbers");
  DotDims dims;
  for (int i = 0; i < a_dims.size(); ++i) {
    const int p = normalize_dim(a_dims[i], a.dim(), "tensordot"), q = normalize_dim(b_dims[i], b.dim(), "tensordot");
    WEFT_CHECK(a.shape()[p] == b.shape()[q], "tensordot: dim ", p, " of ", a.shape(), " and dim ", q, " of ", b.shape(),
               " differ; need equal extents");
    WEFT_CHECK(std::find(dims.a_contract.begin(), dims.a_contract.end(), p) == dims.a_contract.end() &&
                   std::find(dims.b_contract.begin(), dims.b_contract.end(), q) == dims.b_contract.end(),
               "tensordot: dims ", a_dims, " and ", b_dims, " name a dim twice; need each once");
    dims.a_contract.push_back(p);
    dims.b_contract.push_back(q);
  }
  return unlisted_product(a, b, dims);
}

static Tensor cross_along(const Arg& x, const Arg& y, std::optional<int64_t> dim) {
  LineScope line(x.line());
  const Shape &s = tensor_of(x, "cross").shape(), &t = tensor_of(y, "cross").shape();
  int d = 0;
  if (dim) {
    d = normalize_dim(*dim, s.size(), "cross");
  } else {
    while (d < s.size() && s[d] != 3) ++d;
  }
  WEFT_CHECK(s.size() == t.size() && d < s.size() && s[d] == 3 && t[d] == 3, "cross: got ", s, " and ", t,
             "; need equal numbers of dims, and extent 3 in dim ", d < s.size() ? d : 0, " of both");
  const OperandPair p = common(x, y, "cross");
  const Tensor a = widened(p.a), b = widened(p.b);
  return (roll(a, -1, d) * roll(b, -2, d) - roll(a, -2, d) * roll(b, -1, d)).to(p.a.dtype());
}

Tensor cross(const Arg& a, const Arg& b) { return cross_along(a, b, {}); }
Tensor cross(const Arg& a, const Arg& b, int64_t dim) { return cross_along(a, b, dim); }

Tensor kron(const Arg& x, const Arg& y) {
  LineScope line(x.line());
  const Tensor &a = tensor_of(x, "kron"), &b = tensor_of(y, "kron");
  const int rank = std::max(a.dim(), b.dim());
  WEFT_CHECK(2 * rank <= kMaxDims, "kron: got ", a.shape(), " and ", b.shape(), "; need at most ", kMaxDims / 2,
             " dims");
  Shape of_a, of_b, shape;
  for (int d = 0; d < rank; ++d) {
    const int i = d - (rank - a.dim()), j = d - (rank - b.dim());
    const int64_t p = i < 0 ? 1 : a.shape()[i], q = j < 0 ? 1 : b.shape()[j];
    of_a.push_back(p), of_a.push_back(1);
    of_b.push_back(1), of_b.push_back(q);
    shape.push_back(saturating_mul(p, q));
  }
  return reshape(reshape(a, of_a) * reshape(b, of_b), shape);
}

// beta input + alpha a b.
static Tensor scaled_sum(const Arg& input, const Tensor& a, const Tensor& b, const Arg& beta, const Arg& alpha,
                         const DotDims& dims, const char* op) {
  const Tensor& t = tensor_of(input, op);
  using internal::autocast;
  const DType dtype = promote(autocast(t.dtype()), promote(autocast(a.dtype()), autocast(b.dtype())));
  for (const Arg* s : {&beta, &alpha}) {
    WEFT_CHECK(!s->is_tensor(), op, ": beta or alpha is a tensor; need numbers");
    WEFT_CHECK(is_floating(dtype) || s->kind() != Arg::kFloat, op, ": beta or alpha is ", s->number(), " and operands ",
               dtype, "; need integers");
  }
  const auto scaled = [](const Tensor& x, const Arg& s) { return s.number() == 1 ? x : mul(x, s); };
  const DType wide = is_16bit(dtype) ? kFloat32 : dtype;
  const Tensor product = scaled(dot_general(a.to(dtype), b.to(dtype), dims, wide), alpha);
  const Tensor base = broadcast_to(t, product.shape());
  if (beta.number() == 0) return product.to(dtype);
  return (scaled(base.to(wide), beta) + product).to(dtype);
}

Tensor addmm(const Arg& input, const Arg& x, const Arg& y, const Arg& beta, const Arg& alpha) {
  LineScope line(input.line());
  const Tensor &a = tensor_of(x, "addmm"), &b = tensor_of(y, "addmm");
  WEFT_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "addmm: got ", a.shape(), " x ", b.shape(),
             "; need matrices [N, K] and [K, M]");
  return scaled_sum(input, a, b, beta, alpha, {{}, {}, {1}, {0}}, "addmm");
}

Tensor baddbmm(const Arg& input, const Arg& x, const Arg& y, const Arg& beta, const Arg& alpha) {
  LineScope line(input.line());
  const Tensor &a = tensor_of(x, "baddbmm"), &b = tensor_of(y, "baddbmm");
  WEFT_CHECK(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0) && a.size(2) == b.size(1), "baddbmm: got ",
             a.shape(), " x ", b.shape(), "; need batches [B, N, K] and [B, K, M]");
  return scaled_sum(input, a, b, beta, alpha, {{0}, {0}, {2}, {1}}, "baddbmm");
}

Tensor addmv(const Arg& input, const Arg& x, const Arg& y, const Arg& beta, const Arg& alpha) {
  LineScope line(input.line());
  const Tensor &a = tensor_of(x, "addmv"), &v = tensor_of(y, "addmv");
  check_matrix_vector(a, v, "addmv");
  return scaled_sum(input, a, v, beta, alpha, {{}, {}, {1}, {0}}, "addmv");
}

}  // namespace weft
