// Values against the definitions in extended precision, derivatives against central differences, compiled = eager.
#include "ops/linalg/linalg.h"

#include <cmath>
#include <limits>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/base/testing/error_of.h"
#include "framework/base/thread_pool.h"
#include "framework/ir/rewrite.h"
#include "framework/testing/gradcheck.h"
#include "ops/all_ops.h"
#include "ops/core/core.h"

namespace weft::linalg {
namespace {

using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::Random;
using testing::random_tensor;
using testing::Real;
using testing::to_reals;
using Reals = std::vector<Real>;
using Fn = std::function<Tensor(const Tensor&)>;

Tensor random(const Shape& shape, uint64_t seed = 1, DType t = kFloat64) {
  Random r(seed);
  return random_tensor(t, shape, r, -2, 2);
}
Tensor mT(const Tensor& x) { return transpose(x, -2, -1); }
// Positive definite, from any square matrices.
Tensor definite(const Tensor& x) { return matmul(x, mT(x)) + eye(x.size(-1), -1, {.dtype = x.dtype()}); }
Tensor matrix(const std::vector<double>& v, int64_t n) { return Tensor::from_vector<double>(v, {n, n}); }

// The largest difference of two tensors of equal shape, in extended precision.
double distance(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const Reals x = to_reals(a), y = to_reals(b);
  Real most = 0;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
    const Real d = std::fabs(x[i] - y[i]);
    if (!(d <= most)) most = d;
  }
  return static_cast<double>(most);
}
// a b for matrices in extended precision, rounded to f64.
Tensor product(const Tensor& a, const Tensor& b) { return matmul(a.to(kFloat64), b.to(kFloat64)); }

void expect_near(const Tensor& got, const Tensor& want, double within) { EXPECT_LE(distance(got, want), within); }

// The determinant by its definition, a sum over permutations, for n up to 5.
Real leibniz(const Reals& a, int n) {
  std::vector<int> p(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) p[static_cast<size_t>(i)] = i;
  Real total = 0;
  do {
    Real term = 1;
    for (int i = 0; i < n; ++i) {
      term *= a[static_cast<size_t>(i * n + p[static_cast<size_t>(i)])];
      for (int j = i + 1; j < n; ++j)
        if (p[static_cast<size_t>(j)] < p[static_cast<size_t>(i)]) term = -term;
    }
    total += term;
  } while (std::next_permutation(p.begin(), p.end()));
  return total;
}

TEST(Linalg, DecompositionsGiveTheirOperandsBack) {
  for (DType t : {kFloat64, kFloat32}) {
    const double eps = t == kFloat64 ? 1e-13 : 1e-4;
    for (const Shape& shape : {Shape{1, 1}, Shape{5, 5}, Shape{7, 4}, Shape{4, 7}, Shape{2, 3, 20, 18}}) {
      SCOPED_TRACE(shape.to_string());
      const Tensor a = random(shape, 3, t);
      const QR f = qr(a);
      expect_near(product(f.Q, f.R), a.to(kFloat64), eps * 20);
      expect_near(triu(f.R), f.R, 0);
      expect_near(product(mT(f.Q), f.Q),
                  expand(eye(f.Q.size(-1), -1, {.dtype = kFloat64}), product(mT(f.Q), f.Q).shape()), eps);
      const LU p = lu(a);
      expect_near(product(product(p.P, p.L), p.U), a.to(kFloat64), eps * 20);
      expect_near(triu(p.U), p.U, 0);
      expect_near(p.L, tril(p.L), 0);
      EXPECT_LE(amax(abs(p.L)).item<double>(), 1);
      const LUFactor both = lu_factor(a);
      expect_near(triu(slice(both.LU, -2, 0, p.U.size(-2))), p.U, 0);
      for (bool full : {false, true}) {
        const SVD d = linalg::svd(a, full);
        const int64_t k = d.S.size(-1);
        const Tensor us = slice(d.U, -1, 0, k) * unsqueeze(d.S, -2);
        expect_near(product(us, slice(d.Vh, -2, 0, k)), a.to(kFloat64), eps * 20);
        expect_near(sort(d.S, -1, true).values, d.S, 0);
        EXPECT_EQ(d.U.size(-1), full ? a.size(-2) : k);
        EXPECT_EQ(d.Vh.size(-2), full ? a.size(-1) : k);
        expect_near(svdvals(a), d.S, eps * 20);
      }
      const weft::SVD old = weft::svd(a);
      expect_near(product(old.U * unsqueeze(old.S, -2), mT(old.V)), a.to(kFloat64), eps * 20);
      const Tensor inverse = pinv(a);
      expect_near(product(product(a, inverse), a), a.to(kFloat64), eps * 1e3);
      expect_near(product(product(inverse, a), inverse), inverse.to(kFloat64), eps * 1e3);
      if (a.size(-1) != a.size(-2)) continue;
      const Tensor s = a + mT(a);
      const Eigh e = eigh(s);
      expect_near(product(s, e.eigenvectors), (e.eigenvectors * unsqueeze(e.eigenvalues, -2)).to(kFloat64), eps * 20);
      expect_near(eigvalsh(triu(s), "U"), e.eigenvalues, eps);
      expect_near(eigvalsh(tril(s)), e.eigenvalues, 0);
      const Tensor d = definite(a), l = cholesky(d);
      expect_near(product(l, mT(l)), d.to(kFloat64), eps * 50);
      expect_near(cholesky(triu(d), true), mT(l), 0);
    }
  }
}

TEST(Linalg, SolvesEquations) {
  const Tensor a = random({2, 1, 6, 6}, 5), b = random({3, 6, 20}, 6);
  const Tensor x = solve(a, b);
  EXPECT_EQ(x.shape(), (Shape{2, 3, 6, 20}));
  expect_near(product(a, x), expand(b, {2, 3, 6, 20}), 1e-12);
  // A column alone has the same bits.
  EXPECT_TRUE(testing::same_bits(solve(a, slice(b, -1, 13, 14)), slice(x, -1, 13, 14).contiguous()));
  expect_near(product(solve(a, mT(b), /*left=*/false), a), expand(mT(b), {2, 3, 20, 6}), 1e-12);
  const Tensor v = random({6}, 7), m = random({4, 6, 6}, 8);
  EXPECT_EQ(solve(m, v).shape(), (Shape{4, 6}));
  expect_near(reshape(product(m, unsqueeze(solve(m, v), -1)), {4, 6}), expand(v, {4, 6}), 1e-12);
  EXPECT_EQ(solve(m, random({4, 6}, 9)).shape(), (Shape{4, 6}));  // a batch of vectors
  expect_near(product(inv(m), m), expand(eye(6, -1, {.dtype = kFloat64}), {4, 6, 6}), 1e-12);
  expect_near(matrix_power(m, -3), matmul(matmul(inv(m), inv(m)), inv(m)), 1e-9);
  expect_near(matrix_power(m, 5), matmul(matmul(matmul(matmul(m, m), m), m), m), 1e-9);
  expect_near(matrix_power(m, 0), expand(eye(6, -1, {.dtype = kFloat64}), {4, 6, 6}), 0);
  const LUFactor f = lu_factor(a);
  expect_near(product(a, lu_solve(f.LU, f.pivots, b)), expand(b, {2, 3, 6, 20}), 1e-12);
  expect_near(product(mT(a), lu_solve(f.LU, f.pivots, b, true, true)), expand(b, {2, 3, 6, 20}), 1e-12);
  expect_near(product(lu_solve(f.LU, f.pivots, mT(b), false), a), expand(mT(b), {2, 3, 20, 6}), 1e-12);
  expect_near(cholesky_solve(b, cholesky(definite(a))), solve(definite(a), b), 1e-12);
  // Substitution keeps the digits of an ill-conditioned triangular matrix: the Kahan matrix, of condition 1e13.
  const int64_t n = 40;
  const Tensor row = pow(std::sin(0.9), reshape(arange(n, {.dtype = kFloat64}), {n, 1}));
  const Tensor kahan = row * (eye(n, {.dtype = kFloat64}) - triu(ones({n, n}, {.dtype = kFloat64}), 1) * std::cos(0.9));
  const Tensor all = ones({n, 1}, {.dtype = kFloat64}), back = solve_triangular(kahan, all, true);
  expect_near(product(kahan, back) / product(abs(kahan), abs(back)), all / product(abs(kahan), abs(back)), n * 0x1p-53);
  expect_near(solve_triangular(mT(kahan), mT(all), false, false), mT(back), 0);
  // More equations than unknowns: the residual is orthogonal to the columns. Fewer: the least norm.
  const Tensor tall = random({9, 4}, 10), y = random({9, 2}, 11), fit = lstsq(tall, y);
  expect_near(product(mT(tall), y - matmul(tall, fit)), zeros({4, 2}, {.dtype = kFloat64}), 1e-12);
  const Tensor wide = mT(tall), z = random({4, 2}, 12), least = lstsq(wide, z);
  expect_near(product(wide, least), z, 1e-12);
  expect_near(least, matmul(mT(wide), solve(matmul(wide, mT(wide)), z)), 1e-12);
  EXPECT_EQ(matrix_rank(matmul(tall, wide)).item<int64_t>(), 4);
}

TEST(Linalg, DeterminantsAreThoseOfTheDefinition) {
  for (int n = 0; n <= 5; ++n) {
    const Tensor a = random({n, n}, 20 + static_cast<uint64_t>(n));
    const Real want = leibniz(to_reals(a), n);
    EXPECT_NEAR(det(a).item<double>(), static_cast<double>(want), 1e-12);
    const SlogDet s = slogdet(a);
    EXPECT_EQ(s.sign.item<double>(), want < 0 ? -1 : 1);
    EXPECT_NEAR(s.logabsdet.item<double>(), static_cast<double>(std::log(std::fabs(want))), 1e-12);
  }
  const Tensor singular = matrix({1, 2, 2, 4}, 2);
  EXPECT_EQ(det(singular).item<double>(), 0);
  EXPECT_EQ(slogdet(singular).sign.item<double>(), 0);
  EXPECT_EQ(slogdet(singular).logabsdet.item<double>(), -std::numeric_limits<double>::infinity());
  // The gradient is the matrix of cofactors, also of a singular matrix.
  const Tensor x = singular.requires_grad();
  expect_near(grad(det(x), {x})[0], matrix({4, -2, -2, 1}, 2), 1e-14);
  const Tensor row = matrix({1, 1, 0, 2, 2, 2, 0, 0, 0}, 3).requires_grad();
  expect_near(grad(det(row), {row})[0], matrix({0, 0, 0, 0, 0, 0, 2, -2, 0}, 3), 1e-14);
}

TEST(Linalg, ExponentialsAreTheirSeries) {
  const Tensor a = random({3, 4, 4}, 30);
  Tensor term = expand(eye(4, -1, {.dtype = kFloat64}), {3, 4, 4}), total = term;
  for (int k = 1; k < 60; ++k) total = total + (term = matmul(term, a) / k);
  expect_near(matrix_exp(a), total, 1e-11);
  expect_near(matrix_exp(matrix({0, 1, 0, 0}, 2)), matrix({1, 1, 0, 1}, 2), 1e-15);
}

TEST(Linalg, NormsAreTheirDefinitions) {
  const Tensor a = Tensor::from_vector<double>({3, 0, 0, -4, 0, 0}, {2, 3});
  EXPECT_NEAR(matrix_norm(a).item<double>(), 5, 1e-15);
  EXPECT_NEAR(matrix_norm(a, "nuc").item<double>(), 5, 1e-14);
  const double inf = std::numeric_limits<double>::infinity();
  const std::pair<double, double> want[] = {{1, 7}, {-1, 0}, {inf, 4}, {-inf, 3}, {2, 5}, {-2, 0}};
  for (auto [ord, value] : want) EXPECT_NEAR(matrix_norm(a, ord).item<double>(), value, 1e-14) << ord;
  const Tensor b = random({2, 3, 4}, 40);
  EXPECT_EQ(matrix_norm(b, 1, {0, 2}, true).shape(), (Shape{1, 3, 1}));
  expect_near(matrix_norm(b, 1, {0, 2}), amax(sum(abs(b), 0), -1), 1e-15);
  const Tensor zero = zeros({2, 2}, {.dtype = kFloat64}).requires_grad();
  expect_near(grad(matrix_norm(zero), {zero})[0], zeros({2, 2}, {.dtype = kFloat64}), 0);
}

// Functions of a matrix with their derivatives, and whether the second ones are checked.
struct Row {
  const char* name;
  Shape shape;
  Fn fn;
  bool second = true;
};
std::vector<Row> rows() {
  auto symmetric = [](const Tensor& x) { return x + mT(x); };
  return {
      {"solve", {2, 3, 3}, [](const Tensor& x) { return solve(x, mT(x) * x); }},
      {"inv", {2, 3, 3}, [](const Tensor& x) { return inv(x); }},
      {"det", {2, 3, 3}, [](const Tensor& x) { return det(x); }},
      {"slogdet", {2, 3, 3}, [](const Tensor& x) { return slogdet(x).logabsdet; }},
      {"cholesky", {2, 3, 3}, [](const Tensor& x) { return cholesky(definite(x)); }},
      {"qr",
       {2, 4, 3},
       [](const Tensor& x) {
         return cat({qr(x).Q, qr(x).R}, -2);
       }},
      {"qr_square", {3, 3}, [](const Tensor& x) { return qr(x).Q; }},
      {"qr_wide",
       {3, 5},
       [](const Tensor& x) {
         return cat({qr(x).Q, qr(x).R}, -1);
       }},
      {"eigh", {2, 3, 3}, [=](const Tensor& x) { return abs(eigh(symmetric(x)).eigenvectors); }},
      {"eigvalsh", {2, 3, 3}, [=](const Tensor& x) { return eigvalsh(symmetric(x)); }},
      {"svd",
       {4, 3},
       [](const Tensor& x) {
         return cat({abs(linalg::svd(x, false).U), abs(linalg::svd(x, false).Vh)}, -2);
       }},
      {"svd_wide", {2, 2, 4}, [](const Tensor& x) { return abs(linalg::svd(x, false).Vh); }},
      {"svd_full", {4, 3}, [](const Tensor& x) { return abs(slice(linalg::svd(x).U, -1, 0, 3)); }},
      {"svdvals", {2, 4, 3}, [](const Tensor& x) { return svdvals(x); }},
      {"pinv", {4, 3}, [](const Tensor& x) { return pinv(x); }},
      {"pinv_wide", {2, 3, 4}, [](const Tensor& x) { return pinv(x); }},
      {"lstsq", {5, 3}, [](const Tensor& x) { return lstsq(x, slice(square(x), -1, 0, 2)); }},
      {"lu",
       {2, 3, 3},
       [](const Tensor& x) {
         return cat({lu(x).L, lu(x).U}, -2);
       }},
      {"lu_tall", {5, 3}, [](const Tensor& x) { return lu_factor(x).LU; }},
      {"lu_wide", {2, 3, 5}, [](const Tensor& x) { return lu_factor(x).LU; }},
      {"lu_solve",
       {2, 3, 3},
       [](const Tensor& x) {
         const LUFactor f = lu_factor(x);
         return lu_solve(f.LU, f.pivots, square(x));
       }},
      {"solve_triangular", {2, 3, 3}, [](const Tensor& x) { return solve_triangular(x, mT(x), true, false); }},
      {"cholesky_solve", {3, 3}, [](const Tensor& x) { return cholesky_solve(x, cholesky(definite(x))); }},
      {"cond", {3, 3}, [](const Tensor& x) { return cond(x) + cond(x, "fro"); }},
      {"matrix_exp", {2, 3, 3}, [](const Tensor& x) { return matrix_exp(x); }},
      {"matrix_power", {3, 3}, [](const Tensor& x) { return matrix_power(x, -2); }},
      {"nuc", {4, 3}, [](const Tensor& x) { return matrix_norm(x, "nuc"); }},
  };
}

TEST(Linalg, HaveTheRightDerivatives) {
  for (const Row& r : rows()) {
    SCOPED_TRACE(r.name);
    const Tensor x = random(r.shape, 50);
    auto fn = [&](std::span<const Tensor> in) { return std::vector<Tensor>{r.fn(in[0])}; };
    // The roundings of the kernels are multiplied by the condition of the matrices.
    EXPECT_TRUE(gradcheck(fn, {x}, {.roundings = 4096, .elements = 9}));
    if (r.second) {
      EXPECT_TRUE(gradgradcheck(fn, {x}, {.roundings = 65536, .elements = 3}));
    }
  }
}

// Ops that read one triangle of a symmetric matrix: with the derivatives of x + x^T above, a symmetric gradient of the
// matrix itself is the right one.
TEST(Linalg, GradientsOfSymmetricMatricesAreSymmetric) {
  const Tensor a = matrix({2, 1, 0, 1, 3, 1, 0, 1, 5}, 3), w = matrix({1, 2, 3, 4, 5, 6, 7, 8, 9.5}, 3);
  const std::pair<const char*, Fn> functions[] = {
      {"cholesky", [&](const Tensor& x) { return sum(cholesky(x) * w); }},
      {"eigvalsh", [&](const Tensor& x) { return sum(eigvalsh(x) * select(w, 0, 1)); }},
      {"eigh", [&](const Tensor& x) { return sum(square(eigh(x).eigenvectors) * w); }},
      {"eigh_upper", [&](const Tensor& x) { return sum(square(eigh(x, "U").eigenvectors) * w); }},
      {"of the gradient of eigvalsh", [&](const Tensor& x) {
         return sum(grad(sum(eigvalsh(x) * select(w, 0, 1)), {x}, {.create_graph = true})[0] * w);
       }}};
  for (const auto& [name, fn] : functions) {
    SCOPED_TRACE(name);
    const Tensor x = a.requires_grad(), g = grad(fn(x), {x})[0];
    expect_near(g, mT(g), 1e-13);
    // Along g, the function changes by the square of g.
    constexpr double kStep = 0x1p-17;  // its square is below the difference's roundings
    const auto along = [&](double t) { return fn((a + g * t).requires_grad()).item<double>(); };
    const double square_of_g = sum(square(g)).item<double>();
    EXPECT_NEAR((along(kStep) - along(-kStep)) / (2 * kStep), square_of_g, 1e-8 * std::max(1.0, square_of_g));
  }
}

TEST(Linalg, CompiledGiveTheBitsOfEagerAndKeepTheLine) {
  for (const Row& r : rows()) {
    SCOPED_TRACE(r.name);
    for (DType t : {kFloat64, kFloat32}) {
      auto fn = [&](Tensor in) {
        const Tensor x = in.requires_grad();
        const Tensor y = r.fn(x);
        return std::vector{y, grad(y, {x}, {.grad_output = internal::full_of(y.type(), 1)})[0]};
      };
      const Tensor x = random(r.shape, 60, t);
      const std::vector<Tensor> eager = fn(x), compiled = compile(fn, {.numerics = "eager"})(x);
      for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(testing::same_bits(compiled[i], eager[i])) << i;
    }
    const TensorType type{kFloat32, Device::cpu(), r.shape};
    Ref<Graph> g = capture_graph([&](std::span<const Tensor> in) { return std::vector{r.fn(in[0])}; }, {&type, 1});
    EXPECT_TRUE(structurally_equal(*parse_graph(g->to_string(), op_table()), *g));
    for (int32_t id = 0; id < g->size(); ++id) {
      const Node& n = g->node(id);
      if (n.op->is(kStructural)) continue;
      EXPECT_NE(n.line.to_string().find("linalg_test.cc"), std::string::npos) << n.op->name;
    }
  }
}

TEST(Linalg, BitsDependOnNeitherThreadsNorLayout) {
  const int saved = num_threads();
  const Tensor a = random({5, 24, 24}, 70), turned = mT(mT(a).contiguous());
  for (const Fn& fn :
       {Fn([](const Tensor& x) { return inv(x); }), Fn([](const Tensor& x) { return linalg::svd(x).Vh; }),
        Fn([](const Tensor& x) { return eigh(x + mT(x)).eigenvectors; }), Fn([](const Tensor& x) { return qr(x).Q; }),
        Fn([](const Tensor& x) { return lu_factor(x).LU; }), Fn([](const Tensor& x) { return det(x); })}) {
    set_num_threads(1);
    const Tensor one = fn(a);
    set_num_threads(3);
    EXPECT_TRUE(testing::same_bits(fn(a), one));
    EXPECT_TRUE(testing::same_bits(fn(turned), one));
  }
  set_num_threads(saved);
}

TEST(Linalg, EmptyMatricesHaveResults) {
  const TensorOptions f64{.dtype = kFloat64};
  for (const Shape& s : {Shape{0, 0}, Shape{0, 3, 3}, Shape{2, 0, 0}}) {
    SCOPED_TRACE(s.to_string());
    const Tensor a = zeros(s, f64);
    for (const Tensor& y :
         {inv(a), cholesky(a), matrix_exp(a), eigh(a).eigenvectors, qr(a).Q, linalg::svd(a).U, pinv(a)})
      EXPECT_EQ(y.shape(), s);
  }
  EXPECT_EQ(det(zeros({2, 0, 0})).to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(slogdet(zeros({0, 0})).logabsdet.item<float>(), 0);
  EXPECT_EQ(solve(ones({1, 1}), zeros({1, 0})).shape(), (Shape{1, 0}));
  const SVD f = linalg::svd(zeros({3, 0}, f64));
  expect_near(f.U, eye(3, -1, f64), 0);
  EXPECT_EQ(f.Vh.shape(), (Shape{0, 0}));
  EXPECT_EQ(pinv(zeros({3, 0}, f64)).shape(), (Shape{0, 3}));
  EXPECT_EQ(matrix_rank(zeros({3, 0})).item<int64_t>(), 0);
  EXPECT_EQ(lu(zeros({3, 0})).P.shape(), (Shape{3, 3}));
  const LUFactor none = lu_factor(zeros({2, 0, 0}));
  EXPECT_EQ(lu_solve(none.LU, none.pivots, zeros({2, 0, 1})).shape(), (Shape{2, 0, 1}));
}

// The vectors of equal values are not unique, so their derivative does not exist; the values' derivative does.
TEST(Linalg, EqualEigenvaluesHaveGradientsAndTheirVectorsNone) {
  const Tensor x = eye(3, -1, {.dtype = kFloat64}).requires_grad();
  expect_near(grad(sum(eigvalsh(x)), {x})[0], x, 1e-14);
  expect_near(grad(sum(svdvals(x)), {x})[0], x, 1e-14);
  EXPECT_TRUE(std::isnan(grad(sum(eigh(x).eigenvectors), {x})[0].to_vector<double>()[1]));
  EXPECT_TRUE(std::isnan(grad(sum(linalg::svd(x).U), {x})[0].to_vector<double>()[1]));
}

TEST(Linalg, ErrorsSayWhatIsWrong) {
  const Tensor singular = stack({eye(2), ones({2, 2})});
  const std::string text =
      "solve: matrix 1 of the batch is singular: pivot 1 of its LU decomposition is 0; need an "
      "invertible matrix, or pinv";
  expect_error([&] { inv(singular); }, text);
  auto step = compile([](Tensor x) { return solve(x, ones({2, 1})); });
  step(eye(2));
  expect_error([&] { step(ones({2, 2})); }, "solve: the matrix is singular: pivot 1");
  expect_error([&] { cholesky(neg(eye(2))); }, "cholesky: the matrix is not positive definite; need one");
  const Tensor nan = full({2, 2}, std::numeric_limits<double>::quiet_NaN());
  expect_error([&] { cholesky(nan); }, "cholesky: the matrix is not positive definite");
  expect_error([&] { eigh(nan); }, "eigh: the matrix has NaN or infinite elements; need finite ones");
  expect_error([&] { linalg::svd(nan); }, "svd: the matrix has NaN or infinite elements; need finite ones");
  EXPECT_TRUE(std::isnan(det(nan).item<float>()));
  EXPECT_TRUE(std::isnan(matrix_exp(nan).to_vector<float>()[0]));
  expect_error([] { inv(ones({2, 3})); }, "inv: got f32[2, 3]; need square matrices [..., n, n]");
  expect_error([] { det(ones({3})); }, "det: got f32[3]; need a matrix [m, n] or a batch [..., m, n]");
  expect_error(
      [] {
        qr(ones({3, 3}, {.dtype = kBFloat16}));
      },
      "qr: got bf16[3, 3]; need f32 or f64: convert with to(f32)");
  expect_error([] { qr(arange(4).view({2, 2})); }, "qr: got i64[2, 2]; need f32 or f64");
  expect_error(
      [] {
        solve(eye(2), ones({3, 1}));
      },
      "solve: got f32[2, 2] and f32[3, 1]; need [..., n, n] and [..., n, k]");
  expect_error([] { solve(eye(2), ones({2}, {.dtype = kFloat64})); },
               "solve: got f32[2, 2] and f64[2]; need equal dtypes");
  expect_error(
      [] {
        solve_triangular(eye(2), ones({3, 1}), true);
      },
      "solve_triangular: got f32[2, 2] and f32[3, 1]; need [..., n, n] and [..., n, k]");
  expect_error([] { solve_triangular(eye(2) * eye(2)[0], ones({2, 1}), true); }, "the matrix is singular: pivot 1");
  expect_error(
      [] {
        lu_solve(eye(2), zeros({2}), ones({2, 1}));
      },
      "lu_solve: pivots are f32[2] for f32[2, 2]; need integers [..., n] of lu_factor");
  expect_error([] { cond(eye(2), 3); }, "cond: ord is 3; need fro, nuc, 1, -1, 2, -2, inf or -inf");
  expect_error([] { eigh(eye(2), "X"); }, "eigh: uplo is 'X'; need L or U");
  expect_error([] { matrix_norm(eye(2), 3); }, "matrix_norm: ord is 3; need fro, nuc, 1, -1, 2, -2, inf or -inf");
  expect_error([] { matrix_norm(eye(2), "l2"); }, "matrix_norm: ord is 'l2'; need fro");
  expect_error([] { matrix_norm(eye(2), 1, {0, 0}); }, "matrix_norm: dims are [0, 0]; need two different dims");
  expect_error([] { lstsq(eye(2), ones({3, 1})); }, "lstsq: got f32[2, 2] and f32[3, 1]; need equal dtypes");
  EXPECT_EQ(inv(Tensor::empty({kFloat32, Device::meta(), {4, 4}})).device(), Device::meta());
}

}  // namespace
}  // namespace weft::linalg
