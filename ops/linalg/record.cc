// Types, dim maps, costs and derivatives. The derivatives are PyTorch's (torch/csrc/autograd/FunctionsManual.cpp): NaN
// where vectors of equal eigenvalues or singular values are used, because these have no derivative. The gradients
// of eigh and cholesky, which read one triangle of a symmetric matrix, are symmetric.
#include "ops/linalg/record.h"

#include "framework/dispatch/dispatch.h"
#include "ops/all_ops.h"
#include "ops/core/core.h"
#include "ops/core/record_parts.h"
#include "ops/linalg/kernels.h"

namespace weft {
namespace {

// ---- types ----

// The type of operand i, after the check that it is a batch of matrices.
const TensorType& matrices(const InferCall& c, int i = 0) {
  const TensorType& t = c.in[static_cast<size_t>(i)];
  WEFT_CHECK(t.dtype == kFloat32 || t.dtype == kFloat64, c.op.name, ": operand ", i, " is ", t,
             "; need f32 or f64: convert with to(f32)");
  WEFT_CHECK(t.shape.size() >= 2, c.op.name, ": operand ", i, " is ", t,
             "; need a matrix [m, n] or a batch [..., m, n]");
  return t;
}
const TensorType& squares(const InferCall& c) {
  const TensorType& t = matrices(c);
  const int r = t.shape.size();
  WEFT_CHECK(t.shape[r - 1] == t.shape[r - 2], c.op.name, ": operand 0 is ", t, "; need square matrices [..., n, n]");
  return t;
}

// The type of t with `tail` in place of its last two extents.
TensorType with_tail(const TensorType& t, const Shape& tail) {
  Shape s = t.shape;
  s.pop_back();
  s.pop_back();
  for (int64_t n : tail) s.push_back(n);
  return {t.dtype, t.device, s};
}

Types infer_solve(const InferCall& c) {
  const TensorType &a = squares(c), &b = matrices(c, 1);
  const int64_t n = a.shape.back(), k = b.shape.back();
  WEFT_CHECK(a.dtype == b.dtype && b.shape == with_tail(a, {n, k}).shape, "solve: operands are ", a, " and ", b,
             "; need equal dtypes, [..., n, n] and [..., n, k]");
  return {b};
}
Types infer_square(const InferCall& c) { return {squares(c)}; }
Types infer_determinant(const InferCall& c) {
  const TensorType t = with_tail(squares(c), {});
  Types out;
  for (int i = 0; i < 3; ++i) out.push_back(t);
  return out;
}
int64_t rows(const TensorType& t) { return t.shape[t.shape.size() - 2]; }
int64_t columns(const TensorType& t) { return t.shape.back(); }

Types infer_qr(const InferCall& c) {
  const TensorType& t = matrices(c);
  const int64_t m = rows(t), n = columns(t), k = std::min(m, n);
  Types out;
  out.push_back(with_tail(t, {m, k}));
  out.push_back(with_tail(t, {k, n}));
  return out;
}
Types infer_lu(const InferCall& c) {
  const TensorType& t = matrices(c);
  TensorType pivots = with_tail(t, {std::min(rows(t), columns(t))}), order = with_tail(t, {rows(t)});
  pivots.dtype = kInt32;
  order.dtype = kInt64;
  Types out;
  for (const TensorType& r : {t, pivots, order}) out.push_back(r);
  return out;
}
Types infer_eigh(const InferCall& c) {
  const TensorType& t = squares(c);
  Types out;
  out.push_back(with_tail(t, {columns(t)}));
  out.push_back(t);
  return out;
}
Types infer_svd(const InferCall& c) {
  const TensorType& t = matrices(c);
  const bool full = c.attrs.b("full");
  const int64_t m = rows(t), n = columns(t), k = std::min(m, n);
  Types out;
  out.push_back(with_tail(t, {m, full ? m : k}));
  out.push_back(with_tail(t, {k}));
  out.push_back(with_tail(t, {full ? n : k, n}));
  return out;
}

// ---- dim maps and costs ----

// The batch and the columns of solve's b may be split; all other dims are whole.
DimMap dims_batch(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  const int batch = in[0].shape.size() - 2;
  int next = batch;
  auto text = [&](std::span<const TensorType> types) {
    std::string s;
    for (size_t i = 0; i < types.size(); ++i) {
      std::vector<std::string> words;
      for (int d = 0; d < types[i].shape.size(); ++d)
        words.push_back(d < batch ? internal::factor_name(d) : internal::factor_name(next++) + "?");
      s += (i == 0 ? "" : ", ") + internal::join_words(words);  // the text of a number is empty
    }
    return s;
  };
  const std::string from = text(in);
  return DimMap::parse(from + " -> " + text(out), in, out);
}
DimMap dims_solve(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  const int batch = in[0].shape.size() - 2;
  std::vector<std::string> b;
  for (int d = 0; d < batch; ++d) b.push_back(internal::factor_name(d));
  auto with = [&](int i, int j, const char* last) {
    std::vector<std::string> words = b;
    words.push_back(internal::factor_name(batch + i) + "?");
    words.push_back(internal::factor_name(batch + j) + last);
    return internal::join_words(words);
  };
  return DimMap::parse(with(0, 1, "?") + ", " + with(2, 3, "") + " -> " + with(4, 3, ""), in, out);
}

// About `kFactor` n^3 operations for each matrix.
template <int kFactor>
Cost cost_cubic(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  Cost cost;
  cost.flops =
      kFactor * static_cast<double>(in[0].shape.numel()) * static_cast<double>(std::min(rows(in[0]), columns(in[0])));
  if (in.size() > 1) cost.flops += 2 * static_cast<double>(in[1].shape.numel()) * static_cast<double>(rows(in[1]));
  cost.bytes = internal::bytes_of(in) + internal::bytes_of(out);
  return cost;
}

// ---- derivatives ----

Tensor mT(const Tensor& x) { return transpose(x, -2, -1); }
Tensor skew(const Tensor& x) { return sub(x, mT(x)); }
// A number for each row of the last two dims, as a column, and for each column, as a row.
Tensor column(const Tensor& s) { return unsqueeze(s, -1); }
Tensor row(const Tensor& s) { return unsqueeze(s, -2); }
Tensor identity(const Tensor& x, int64_t n) { return eye(n, -1, {.dtype = x.dtype(), .device = x.device()}); }
Tensor identities(const Tensor& x) { return broadcast_to(identity(x, x.size(-1)), x.shape()); }
Tensor solved(const Tensor& a, const Tensor& b) { return dispatch(solve_op, {&a, &b}); }
// The sum of both, where each may be undefined: zero.
Tensor plus(const Tensor& a, const Tensor& b) { return !a.defined() ? b : !b.defined() ? a : add(a, b); }
// values[j] - values[i] at [i, j], and 1 on the diagonal.
Tensor gaps(const Tensor& values) { return add(sub(row(values), column(values)), identity(values, values.size(-1))); }

Grads vjp_solve(const VjpCall& c) {
  const Tensor gb = solved(mT(c.in[0]), c.grad[0]);
  return {c.needs(0) ? neg(matmul(gb, mT(c.out[0]))) : Tensor(), gb};
}

Grads vjp_determinant(const VjpCall& c) {
  const Tensor& a = c.in[0];
  Tensor ga;
  if (c.grad[0].defined()) ga = mul(column(column(c.grad[0])), dispatch(cofactors_op, {&a}));
  if (c.grad[2].defined()) ga = plus(ga, mul(column(column(c.grad[2])), solved(mT(a), identities(a))));
  return {ga};
}

// If k = a^-T, then d(det k) = det (tr(k^T da) k - k da^T k).
Grads vjp_cofactors(const VjpCall& c) {
  const Tensor& a = c.in[0];
  const Tensor* in[] = {&a};
  const Tensor det = dispatch_multi(determinant_op, in)[0], k = solved(mT(a), identities(a)), &g = c.grad[0];
  const Tensor along = sum(mul(g, k), {-2, -1}, true);
  return {mul(column(column(det)), sub(mul(along, k), matmul(matmul(k, mT(g)), k)))};
}

Grads vjp_cholesky(const VjpCall& c) {
  const Tensor& l = c.out[0];
  const Tensor p = matmul(mT(l), c.grad[0]);
  const Tensor phi = sub(tril(p), mul(mul(p, identity(p, p.size(-1))), 0.5));
  const Tensor s = mT(solved(mT(l), mT(solved(mT(l), phi))));
  return {mul(add(s, mT(s)), 0.5)};
}

Grads vjp_qr(const VjpCall& c) {
  const Tensor &q = c.out[0], &r = c.out[1], &gq = c.grad[0], &gr = c.grad[1];
  const int64_t m = q.size(-2), k = r.size(-2), n = r.size(-1);
  Tensor g;
  if (gr.defined()) g = matmul(gr, mT(r));
  if (gq.defined()) g = plus(g, neg(matmul(mT(q), gq)));
  if (m >= n) {
    const Tensor up = triu(g);
    g = matmul(q, sub(add(up, mT(up)), mul(up, identity(up, n))));
    return {mT(solved(r, mT(plus(gq, g))))};
  }
  const Tensor down = tril(sub(mT(g), g)), first = slice(r, -1, 0, k);
  g = mT(solved(first, mT(down)));
  std::vector<int64_t> wider = {0, n - k};
  return {matmul(q, plus(gr, pad(g, wider)))};
}

// The derivative of a square a with p^T a = l u is p l^-T (tril(l^T gl, -1) + triu(gu u^T)) u^-T. Further rows of l are
// b u^-1 and further columns of u are l^-1 b: their gradients are added to the gradients of u and l.
Grads vjp_lu(const VjpCall& c) {
  if (!c.grad[0].defined()) return {Tensor()};
  const Tensor &lu = c.out[0], &g = c.grad[0];
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  const Tensor head = slice(slice(lu, -2, 0, k), -1, 0, k), ghead = slice(slice(g, -2, 0, k), -1, 0, k);
  const Tensor l = add(tril(head, -1), identity(head, k)), u = triu(head);
  Tensor gl = tril(ghead, -1), gu = triu(ghead), rest;
  if (m > n) {
    const Tensor low = slice(lu, -2, k, m);
    rest = mT(solved(u, mT(slice(g, -2, k, m))));  // solutions of the further rows
    gu = sub(gu, matmul(mT(low), rest));
  } else if (n > m) {
    const Tensor right = slice(lu, -1, k, n);
    rest = solved(mT(l), slice(g, -1, k, n));
    gl = sub(gl, matmul(rest, mT(right)));
  }
  const Tensor inner = add(tril(matmul(mT(l), gl), -1), triu(matmul(gu, mT(u))));
  Tensor ga = mT(solved(u, mT(solved(mT(l), inner))));
  if (rest.defined()) ga = cat({ga, rest}, m > n ? -2 : -1);
  // Row k of ga belongs to row order[k] of a.
  return {take_along_dim(ga, column(argsort(c.out[2])), -2)};
}

Grads vjp_eigh(const VjpCall& c) {
  const Tensor &w = c.out[0], &v = c.out[1], &gw = c.grad[0], &gv = c.grad[1];
  Tensor g;
  if (gw.defined()) g = mul(identity(w, w.size(-1)), row(gw));
  // Half of the matrix and half of its transpose: the operand is symmetric, and only one triangle of it is read.
  if (gv.defined()) g = plus(g, div(mul(skew(matmul(mT(v), gv)), 0.5), gaps(w)));
  return {matmul(matmul(v, g), mT(v))};
}

Grads vjp_svd(const VjpCall& c) {
  const Tensor& s = c.out[1];
  const int64_t k = s.size(-1), m = c.in[0].size(-2), n = c.in[0].size(-1);
  auto thin = [&](const Tensor& x, int64_t dim) { return x.defined() ? slice(x, dim, 0, k) : x; };
  const Tensor u = thin(c.out[0], -1), vh = thin(c.out[2], -2), gu = thin(c.grad[0], -1), gvh = thin(c.grad[2], -2);
  Tensor g;
  if (gu.defined()) g = mul(skew(matmul(mT(u), gu)), row(s));
  if (gvh.defined()) g = plus(g, mul(column(s), skew(matmul(vh, mT(gvh)))));
  if (g.defined()) g = div(g, gaps(square(s)));
  if (c.grad[1].defined()) g = plus(g, mul(identity(s, k), row(c.grad[1])));
  Tensor left = matmul(u, g);
  if (gu.defined() && m > k) {
    const Tensor gs = div(gu, row(s));
    left = add(left, sub(gs, matmul(u, matmul(mT(u), gs))));
  }
  Tensor ga = matmul(left, vh);
  if (gvh.defined() && n > k) {
    const Tensor gs = div(gvh, column(s));
    ga = add(ga, matmul(u, sub(gs, matmul(matmul(gs, mT(vh)), vh))));
  }
  return {ga};
}

// The derivative of e^a in a direction is a block of the exponential of a larger matrix (Najfeld and Havel 1995).
Grads vjp_matrix_exp(const VjpCall& c) {
  const Tensor at = mT(c.in[0]), zero = zeros_like(at);
  const int64_t n = at.size(-1);
  const Tensor blocks = cat({cat({at, c.grad[0]}, -1), cat({zero, at}, -1)}, -2);
  return {slice(slice(dispatch(matrix_exp_op, {&blocks}), -2, 0, n), -1, n, 2 * n)};
}

}  // namespace

const OpDef solve_op = {
    .name = "solve",
    .doc = "a^-1 b for matrices in the last two dims, by LU with partial pivoting.",
    .traits = kMayThrow,
    .num_inputs = 2,
    .infer = infer_solve,
    .vjp = vjp_solve,
    .dims = dims_solve,
    .cost = cost_cubic<1>,
    .kernel = [](const KernelCall& c) { kernels::solve(c.in[0], c.in[1], c.out[0]); },
    .linear = 2,
};
const OpDef lu_op = {
    .name = "lu",
    .doc = "l and u in one matrix with p l u = a, the pivots (from 1), and the row of a for each row of l u.",
    .num_outputs = 3,
    .infer = infer_lu,
    .vjp = vjp_lu,
    .dims = dims_batch,
    .cost = cost_cubic<1>,
    .kernel = [](const KernelCall& c) { kernels::lu(c.in[0], c.out[0], c.out[1], c.out[2]); },
};
const OpDef determinant_op = {
    .name = "determinant",
    .doc = "The determinant, its sign, and the logarithm of its absolute value.",
    .num_outputs = 3,
    .infer = infer_determinant,
    .vjp = vjp_determinant,
    .dims = dims_batch,
    .cost = cost_cubic<1>,
    .kernel = [](const KernelCall& c) { kernels::determinant(c.in[0], c.out[0], c.out[1], c.out[2]); },
};
const OpDef cofactors_op = {
    .name = "cofactors",
    .doc = "The derivative of the determinant by each element, also of singular matrices.",
    .infer = infer_square,
    .vjp = vjp_cofactors,
    .dims = dims_batch,
    .cost = cost_cubic<3>,
    .kernel = [](const KernelCall& c) { kernels::cofactors(c.in[0], c.out[0]); },
};
const OpDef cholesky_op = {
    .name = "cholesky",
    .doc = "The lower triangular l with l l^T = a, for positive definite a.",
    .traits = kMayThrow,
    .infer = infer_square,
    .vjp = vjp_cholesky,
    .dims = dims_batch,
    .cost = cost_cubic<1>,
    .kernel = [](const KernelCall& c) { kernels::cholesky(c.in[0], c.out[0]); },
};
const OpDef qr_op = {
    .name = "qr",
    .doc = "q with orthonormal columns and upper triangular r, with q r = a.",
    .num_outputs = 2,
    .infer = infer_qr,
    .vjp = vjp_qr,
    .dims = dims_batch,
    .cost = cost_cubic<4>,
    .kernel = [](const KernelCall& c) { kernels::qr(c.in[0], c.out[0], c.out[1]); },
};
const OpDef eigh_op = {
    .name = "eigh",
    .doc = "Eigenvalues, ascending, and eigenvectors of symmetric matrices.",
    .traits = kMayThrow,
    .num_outputs = 2,
    .infer = infer_eigh,
    .vjp = vjp_eigh,
    .dims = dims_batch,
    .cost = cost_cubic<9>,
    .kernel = [](const KernelCall& c) { kernels::eigh(c.in[0], c.out[0], c.out[1]); },
};
const OpDef svd_op = {
    .name = "svd",
    .doc = "u, s (descending) and vh with u diag(s) vh = a; square u and vh if {full}.",
    .traits = kMayThrow,
    .num_outputs = 3,
    .infer = infer_svd,
    .vjp = vjp_svd,
    .dims = dims_batch,
    .cost = cost_cubic<20>,
    .kernel = [](const KernelCall& c) { kernels::svd(c.in[0], c.out[0], c.out[1], c.out[2]); },
};
const OpDef matrix_exp_op = {
    .name = "matrix_exp",
    .doc = "e^a = I + a + a a / 2 + ...",
    .infer = infer_square,
    .vjp = vjp_matrix_exp,
    .dims = dims_batch,
    .cost = cost_cubic<30>,
    .kernel = [](const KernelCall& c) { kernels::matrix_exp(c.in[0], c.out[0]); },
};

std::span<const OpDef* const> linalg_ops() {
  static const OpDef* const all[] = {&solve_op, &lu_op,   &determinant_op, &cofactors_op, &cholesky_op,
                                     &qr_op,    &eigh_op, &svd_op,         &matrix_exp_op};
  return all;
}

namespace {
const bool registered = (register_ops(linalg_ops()), true);
}

}  // namespace weft
