#include "ops/linalg/linalg.h"

#include <cmath>
#include <limits>

#include "framework/autodiff/grad.h"
#include "framework/base/called.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/core.h"
#include "ops/linalg/record.h"

namespace weft::linalg {

using internal::LineScope;
using internal::tensor_of;

namespace {

Tensor mT(const Tensor& x) { return transpose(x, -2, -1); }

const Tensor& matrices(const Arg& x, const char* op) {
  const Tensor& t = tensor_of(x, op);
  WEFT_CHECK(t.dtype() == kFloat32 || t.dtype() == kFloat64, op, ": got ", t.type(),
             "; need f32 or f64: convert with to(f32)");
  WEFT_CHECK(t.dim() >= 2, op, ": got ", t.type(), "; need a matrix [m, n] or a batch [..., m, n]");
  return t;
}
const Tensor& squares(const Arg& x, const char* op) {
  const Tensor& t = matrices(x, op);
  WEFT_CHECK(t.size(-1) == t.size(-2), op, ": got ", t.type(), "; need square matrices [..., n, n]");
  return t;
}

std::vector<Tensor> call(const OpDef& op, const Tensor& x, const Attrs& attrs = {}) {
  const Tensor* in[] = {&x};
  return dispatch_multi(op, in, attrs);
}

Shape batch_of(const Tensor& x) { return Shape(std::span<const int64_t>(x.shape()).first(x.dim() - 2)); }
Tensor with_batch(const Tensor& x, Shape batch) {
  batch.push_back(x.size(-2));
  batch.push_back(x.size(-1));
  return broadcast_to(x, batch);
}
Tensor identities(const Tensor& x) {
  return broadcast_to(eye(x.size(-1), -1, {.dtype = x.dtype(), .device = x.device()}), x.shape());
}

// The matrix whose lower triangle is x's lower triangle, or the transpose of x's upper triangle.
Tensor lower_of(const Tensor& x, std::string_view uplo, const char* op) {
  WEFT_CHECK(uplo == "L" || uplo == "U", op, ": uplo is '", uplo, "'; need L or U");
  return uplo == "L" ? x : mT(x);
}

double tolerance(const Tensor& a, double given) {
  if (given >= 0) return given;
  const double eps = a.dtype() == kFloat64 ? std::numeric_limits<double>::epsilon()
                                           : static_cast<double>(std::numeric_limits<float>::epsilon());
  return eps * static_cast<double>(std::max(a.size(-1), a.size(-2)));
}

// 1 where a singular value counts, of x's dtype; largest: [..., 1].
Tensor counts(const Tensor& s, double rtol) {
  if (s.size(-1) == 0) return gt(s, 0.0);
  return gt(s, mul(amax(s, {-1}, true), rtol));
}

// x^(1/2), and 0 with the derivative 0 at 0.
Tensor root(const Tensor& x) {
  const Tensor zero = eq(x, 0.0);
  return where(zero, 0.0, sqrt(where(zero, 1.0, x)));
}

// The pseudo-inverse, with the derivative of Golub and Pereyra (1973), which needs no distinct singular values.
Tensor pinv_of(const Tensor& a, double rtol) {
  const Autocast off(std::nullopt);
  auto forward = [rtol](std::span<const Tensor> in) {
    const std::vector<Tensor> f = call(svd_op, in[0], {{"full", false}});
    const Tensor kept = counts(f[1], rtol);
    const Tensor inverse = where(kept, div(1.0, where(kept, f[1], 1.0)), 0.0);
    return std::vector<Tensor>{matmul(mul(mT(f[2]), unsqueeze(inverse, -2)), mT(f[0]))};
  };
  auto backward = [](std::span<const Tensor> in, std::span<const Tensor> out, std::span<const Tensor> grad) {
    const Tensor &x = in[0], &p = out[0], g = mT(grad[0]), pt = mT(p);
    if (x.size(-2) <= x.size(-1)) {
      const Tensor k = matmul(g, p), kp = matmul(k, pt);
      return std::vector<Tensor>{
          add(sub(sub(kp, mT(matmul(p, k))), matmul(matmul(x, p), kp)), matmul(matmul(pt, p), sub(g, matmul(k, x))))};
    }
    const Tensor k = matmul(p, g), pk = matmul(pt, k);
    return std::vector<Tensor>{
        add(sub(matmul(matmul(sub(g, matmul(x, k)), p), pt), mT(matmul(k, p))), sub(pk, matmul(matmul(pk, p), x)))};
  };
  return custom_grad(forward, backward)(a);
}

}  // namespace

Tensor solve(const Arg& x, const Arg& y, bool left) {
  LineScope here(x.line());
  const Tensor &a = squares(x, "solve"), &b = tensor_of(y, "solve");
  WEFT_CHECK(a.dtype() == b.dtype(), "solve: got ", a.type(), " and ", b.type(), "; need equal dtypes");
  const Shape vector(std::span<const int64_t>(a.shape()).first(a.dim() - 1));
  if (b.dim() == 1 || b.shape() == vector) {
    WEFT_CHECK(left, "solve: b is ", b.type(), ", a vector; need matrices [..., k, n] with left = false");
    WEFT_CHECK(b.size(-1) == a.size(-1), "solve: got ", a.type(), " and ", b.type(), "; need [..., n, n] and [..., n]");
    return squeeze(solve(a, unsqueeze(b, -1)), -1);
  }
  WEFT_CHECK(b.dim() >= 2 && b.size(left ? -2 : -1) == a.size(-1), "solve: got ", a.type(), " and ", b.type(),
             "; need [..., n, n] and ", left ? "[..., n, k]" : "[..., k, n]");
  if (!left) return mT(solve(mT(a), mT(b)));
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b), "solve");
  const Tensor m = with_batch(a, batch), v = with_batch(b, batch);
  return dispatch(solve_op, {&m, &v}, {}, x.line());
}

Tensor solve_triangular(const Arg& x, const Arg& y, bool upper, bool left, bool unitriangular) {
  LineScope here(x.line());
  const internal::Called name("solve_triangular");
  const Tensor &a = squares(x, "solve_triangular"), &b = matrices(y, "solve_triangular");
  if (!left) return mT(solve_triangular(mT(a), mT(b), !upper, true, unitriangular));
  Tensor t = upper ? triu(a, unitriangular) : tril(a, unitriangular ? -1 : 0);
  if (unitriangular) t = add(t, identities(a));
  // The LU decomposition of an upper triangular matrix is the matrix itself, and solve substitutes backwards.
  const Shape both{-2, -1}, rows{-2};
  const Tensor v = with_batch(b, broadcast_shapes(batch_of(a), batch_of(b), "solve_triangular"));
  return upper ? solve(t, v) : flip(solve(flip(t, both), flip(v, rows)), rows);
}

namespace {

// The row of a for each row of l u [..., m, n], from the pivots: rows are exchanged in order.
Tensor rows_of(const Tensor& pivots, int64_t m, SourceLine line) {
  Shape all = pivots.shape();
  const int64_t k = all.back();
  all.back() = m;
  const TensorOptions integers{.dtype = kInt64, .device = pivots.device()};
  const Tensor at = arange(m, integers), p = unsqueeze(movedim(sub(cast(pivots, kInt64), 1), -1, 0), -1);
  return internal::run_loop(
      [&](std::span<const Tensor> in) {
        const Tensor &rows = in[0], &to = in[1], &from = in[2];
        const Tensor far = gather(rows, -1, to), near = gather(rows, -1, broadcast_to(from, to.shape()));
        return internal::Iteration{{where(eq(at, from), far, where(eq(at, to), near, rows))}, {}};
      },
      {broadcast_to(at, all)}, {p, arange(k, integers)}, {}, line)[0];
}

}  // namespace

LU lu(const Arg& x) {
  LineScope here(x.line());
  const Tensor& a = matrices(x, "lu");
  const std::vector<Tensor> f = call(lu_op, a);
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const TensorOptions options{.dtype = a.dtype(), .device = a.device()};
  const Tensor at = arange(m, {.dtype = kInt64, .device = a.device()});
  return {cast(eq(unsqueeze(at, -1), unsqueeze(f[2], -2)), a.dtype()),
          add(tril(slice(f[0], -1, 0, k), -1), eye(m, k, options)), triu(slice(f[0], -2, 0, k))};
}

LUFactor lu_factor(const Arg& x) {
  LineScope here(x.line());
  const std::vector<Tensor> f = call(lu_op, matrices(x, "lu_factor"));
  return {f[0], f[1]};
}

Tensor lu_solve(const Arg& x, const Arg& pivots, const Arg& y, bool left, bool adjoint) {
  LineScope here(x.line());
  const internal::Called name("lu_solve");
  const Tensor &a = squares(x, "lu_solve"), &p = tensor_of(pivots, "lu_solve"), &b = matrices(y, "lu_solve");
  WEFT_CHECK(is_integral(p.dtype()) && p.shape() == Shape(std::span<const int64_t>(a.shape()).first(a.dim() - 1)),
             "lu_solve: pivots are ", p.type(), " for ", a.type(), "; need integers [..., n] of lu_factor");
  if (!left) return mT(lu_solve(a, p, mT(b), true, !adjoint));
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b), "lu_solve");
  const Tensor v = with_batch(b, batch), rows = unsqueeze(rows_of(p, a.size(-1), x.line()), -1);
  if (!adjoint) return solve_triangular(a, solve_triangular(a, take_along_dim(v, rows, -2), false, true, true), true);
  const Tensor t = mT(a), r = solve_triangular(t, solve_triangular(t, v, false), true, true, true);
  return take_along_dim(r, argsort(rows, -2), -2);
}

Tensor cond(const Arg& x, double ord) {
  LineScope here(x.line());
  const internal::Called name("cond");
  if (std::fabs(ord) != 2) return mul(matrix_norm(x, ord), matrix_norm(inv(x), ord));
  const Tensor s = svdvals(matrices(x, "cond"));
  const Tensor most = select(s, -1, 0), least = select(s, -1, -1);
  return ord > 0 ? div(most, least) : div(least, most);
}
Tensor cond(const Arg& x, std::string_view ord) {
  LineScope here(x.line());
  const internal::Called name("cond");
  return mul(matrix_norm(x, ord), matrix_norm(inv(x), ord));
}

Tensor inv(const Arg& x) {
  LineScope here(x.line());
  const Tensor& a = squares(x, "inv");
  return solve(a, identities(a));
}

Tensor det(const Arg& x) {
  LineScope here(x.line());
  return call(determinant_op, squares(x, "det"))[0];
}
SlogDet slogdet(const Arg& x) {
  LineScope here(x.line());
  const std::vector<Tensor> r = call(determinant_op, squares(x, "slogdet"));
  return {r[1].detach(), r[2]};
}

Tensor cholesky(const Arg& x, bool upper) {
  LineScope here(x.line());
  const Tensor l = call(cholesky_op, lower_of(squares(x, "cholesky"), upper ? "U" : "L", "cholesky"))[0];
  return upper ? mT(l) : l;
}
QR qr(const Arg& x) {
  LineScope here(x.line());
  const std::vector<Tensor> r = call(qr_op, matrices(x, "qr"));
  return {r[0], r[1]};
}
Eigh eigh(const Arg& x, std::string_view uplo) {
  LineScope here(x.line());
  const std::vector<Tensor> r = call(eigh_op, lower_of(squares(x, "eigh"), uplo, "eigh"));
  return {r[0], r[1]};
}
Tensor eigvalsh(const Arg& x, std::string_view uplo) {
  LineScope here(x.line());
  return call(eigh_op, lower_of(squares(x, "eigvalsh"), uplo, "eigvalsh"))[0];
}
SVD svd(const Arg& x, bool full_matrices) {
  LineScope here(x.line());
  const std::vector<Tensor> r = call(svd_op, matrices(x, "svd"), {{"full", full_matrices}});
  return {r[0], r[1], r[2]};
}
Tensor svdvals(const Arg& x) {
  LineScope here(x.line());
  return call(svd_op, matrices(x, "svdvals"), {{"full", false}})[1];
}

Tensor pinv(const Arg& x, double rtol) {
  LineScope here(x.line());
  const Tensor& a = matrices(x, "pinv");
  return pinv_of(a, tolerance(a, rtol));
}
Tensor lstsq(const Arg& x, const Arg& y, double rcond) {
  LineScope here(x.line());
  const Tensor &a = matrices(x, "lstsq"), &b = matrices(y, "lstsq");
  WEFT_CHECK(a.dtype() == b.dtype() && a.size(-2) == b.size(-2), "lstsq: got ", a.type(), " and ", b.type(),
             "; need equal dtypes, [..., m, n] and [..., m, k]");
  const Autocast off(std::nullopt);
  return matmul(pinv_of(a, tolerance(a, rcond)), b);
}
Tensor matrix_rank(const Arg& x, double rtol) {
  LineScope here(x.line());
  const Tensor& a = matrices(x, "matrix_rank");
  return sum(counts(svdvals(a), tolerance(a, rtol)), -1);
}

namespace {

// The operand of a matrix norm. Norms without a decomposition take 16-bit floats, as vector norms do.
Tensor normed(const Arg& x, bool decomposes) {
  const bool half = x.is_tensor() && x.tensor().defined() && is_16bit(x.tensor().dtype());
  return half && !decomposes ? x.tensor().to(kFloat32) : matrices(x, "matrix_norm");
}

// x with the two dims last.
Tensor moved(const Tensor& x, const Dims& dims) {
  WEFT_CHECK(dims.size() == 2, "matrix_norm: dims are ", Shape(dims), "; need two");
  const int a = normalize_dim(dims[0], x.dim(), "matrix_norm"), b = normalize_dim(dims[1], x.dim(), "matrix_norm");
  WEFT_CHECK(a != b, "matrix_norm: dims are ", Shape(dims), "; need two different dims");
  Shape order;
  for (int d = 0; d < x.dim(); ++d)
    if (d != a && d != b) order.push_back(d);
  order.push_back(a);
  order.push_back(b);
  return permute(x, order);
}

Tensor kept(const Tensor& y, const Tensor& x, const Dims& dims, bool keepdim) {
  if (!keepdim) return y;
  Shape s = x.shape();
  for (int64_t d : dims) s[normalize_dim(d, x.dim(), "matrix_norm")] = 1;
  return reshape(y, s);
}

}  // namespace

Tensor matrix_norm(const Arg& arg, std::string_view ord, const Dims& dims, bool keepdim) {
  LineScope here(arg.line());
  WEFT_CHECK(ord == "fro" || ord == "nuc", "matrix_norm: ord is '", ord, "'; need fro, nuc, 1, -1, 2, -2, inf or -inf");
  const Tensor x = normed(arg, ord == "nuc"), m = moved(x, dims);
  const Tensor y = ord == "fro" ? root(sum(square(m), {-2, -1})) : sum(svdvals(m), -1);
  return kept(y, x, dims, keepdim).to(arg.tensor().dtype());
}

Tensor matrix_norm(const Arg& arg, double ord, const Dims& dims, bool keepdim) {
  LineScope here(arg.line());
  const double size = std::fabs(ord);
  WEFT_CHECK(size == 1 || size == 2 || std::isinf(size), "matrix_norm: ord is ", ord,
             "; need fro, nuc, 1, -1, 2, -2, inf or -inf");
  const Tensor x = normed(arg, size == 2), m = moved(x, dims);
  const Tensor each = size == 2 ? svdvals(m) : sum(abs(m), size == 1 ? -2 : -1);
  return kept(ord > 0 ? amax(each, -1) : amin(each, -1), x, dims, keepdim).to(arg.tensor().dtype());
}

Tensor matrix_power(const Arg& x, int64_t n) {
  LineScope here(x.line());
  const Tensor& a = squares(x, "matrix_power");
  if (n == 0) return identities(a);
  Tensor base = n < 0 ? inv(a) : a, result;
  for (uint64_t left = n < 0 ? -static_cast<uint64_t>(n) : static_cast<uint64_t>(n);;) {
    if (left & 1) result = result.defined() ? matmul(result, base) : base;
    if ((left >>= 1) == 0) return result;
    base = matmul(base, base);
  }
}

Tensor matrix_exp(const Arg& x) {
  LineScope here(x.line());
  return call(matrix_exp_op, squares(x, "matrix_exp"))[0];
}

}  // namespace weft::linalg

namespace weft {

Tensor cholesky_solve(const Arg& b, const Arg& l, bool upper) {
  internal::LineScope here(b.line());
  const internal::Called name("cholesky_solve");
  const Tensor &f = internal::tensor_of(l, "cholesky_solve"), t = transpose(f, -2, -1);
  const Tensor &lower = upper ? t : f, &above = upper ? f : t;
  return linalg::solve_triangular(above, linalg::solve_triangular(lower, b, false), true);
}

SVD svd(const Arg& a, bool some) {
  internal::LineScope here(a.line());
  const linalg::SVD f = linalg::svd(a, !some);
  return {f.U, f.S, transpose(f.Vh, -2, -1)};
}

}  // namespace weft
