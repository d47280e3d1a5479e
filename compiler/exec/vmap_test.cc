// vmap() and kernel() as a user calls them, eager and compiled.
#include "ops/core/functions/vmap.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/testing/compare.h"
#include "weft.h"

namespace weft {
namespace {

using testing::close;

TEST(VmapFunction, ArgumentsAndResultsAreAnyTensors) {
  const Tensor x = randn({4, 3, 5}), w = randn({5, 2});
  struct Both {
    Tensor sum, product;
  };
  const auto f = vmap(
      [](const std::pair<Tensor, Tensor>& in) {
        return Both{in.first.sum(), matmul(in.first, in.second)};
      },
      {.in_dims = {1}, .out_dim = -1});
  const Tensor many = stack({w, w * 2, w * 3}, 1);
  const Both got = f(std::pair{x, many});
  EXPECT_EQ(got.sum.shape(), (Shape{3}));
  EXPECT_EQ(got.product.shape(), (Shape{4, 2, 3}));
  for (int64_t k = 0; k < 3; ++k)
    EXPECT_TRUE(close(contiguous(select(got.product, -1, k)),
                      contiguous(matmul(contiguous(select(x, 1, k)), w * (k + 1))), kFloat32, 50));
}

TEST(VmapFunction, GivesAGradientForEachExample) {
  manual_seed(1);
  const Tensor x = randn({6, 4}, {.dtype = kFloat64}), y = randn({6}, {.dtype = kFloat64});
  const Tensor w = randn({4}, {.dtype = kFloat64}).requires_grad();
  const auto loss = [](const Tensor& a, const Tensor& b, const Tensor& v) { return square(tanh(dot(a, v)) - b); };
  const auto step = [&](Tensor xs, Tensor ys, Tensor v) {
    const Tensor own = v.requires_grad();
    return vmap([&](const Tensor& a, const Tensor& b) { return grad(loss(a, b, own), {own})[0]; })(xs, ys);
  };
  const Tensor eager = step(x, y, w), compiled = compile(step)(x, y, w);
  ASSERT_EQ(eager.shape(), (Shape{6, 4}));
  for (int64_t k = 0; k < 6; ++k)
    EXPECT_TRUE(close(contiguous(eager[k]), grad(loss(x[k], y[k], w), {w})[0], kFloat64, 50)) << k;
  EXPECT_TRUE(close(compiled, eager, kFloat64, 50));
}

// A body has no tape of computations before it, like a captured function.
TEST(VmapFunction, AGradientThroughWhatWasComputedOutsideIsAnError) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}});
  const Parameter p(tensor({1.0, 2.0}));
  const auto tries = [&](const Tensor& r) {
    const Tensor h = r * 2, both = p.value() * r, loss = (r * r).sum();
    const std::function<void()> calls[] = {
        [&] { vmap([&](Tensor a) { return grad((a * h).sum(), {r})[0]; })(x); },
        [&] { vmap([&](Tensor a) { return vmap([&](Tensor b) { return grad((a * b * h).sum(), {r})[0]; })(x); })(x); },
        [&] { vmap([&](Tensor a) { return grad(loss, {r}, {.grad_output = a.sum()})[0]; })(x); },
        [&] { vmap([&](Tensor a) { return grad((a * both).sum(), std::vector{p})[0]; })(x); },
        [&] {
          scan([&](Tensor c, Tensor a) { return std::pair{c, grad((a * h).sum(), {r})[0]}; }, zeros({}), x);
        },
        [&] { kernel([&](Index i) { return grad((x[0] * h).sum(), {r})[0](i); }, {2}); }};
    for (const auto& call : calls) {
      const std::string e = testing::error_of(call);
      EXPECT_NE(e.find("was computed from an operand of grad outside the function of "), e.npos) << e;
    }
    // Values that are detached, depend on other values, or are computed inside: no gradient is lost.
    const Tensor other = ones({2}).requires_grad() * 3;
    const Tensor got = vmap([&](Tensor a) { return grad((a * h.detach() * r + other * (r * a)).sum(), {r})[0]; })(x);
    if (!got.is_traced()) {
      EXPECT_TRUE(testing::close(got.detach(), (x * h + other * x).detach(), kFloat32, 8));
    }
  };
  tries(tensor({0.5, -1.0}).requires_grad());
  compile([&](Tensor t) {
    tries(t.requires_grad());
    return t;
  })(tensor({0.5, -1.0}));
}

TEST(VmapFunction, AnEscapedLossIsAnError) {
  const Parameter p(tensor({1.0, 2.0}));
  Tensor loss, w;
  compile([&](Tensor x) {
    w = p.value();
    loss = (w * x).sum();
    return loss;
  })(ones({2}));
  for (const auto& call : {std::function<void()>([&] { grad(loss, std::vector{p}); }), {[&] { grad(loss, {w}); }}}) {
    const std::string e = testing::error_of(call);
    EXPECT_NE(e.find("grad: the loss (f32[]) was traced by a captured function that has ended"), e.npos) << e;
  }
}

TEST(VmapFunction, NestsAndHasGradients) {
  const Tensor x = randn({3, 4}, {.dtype = kFloat64}).requires_grad();
  const auto pairs = vmap([&](const Tensor& a) { return vmap([&](const Tensor& b) { return sum(exp(a * b)); })(x); });
  const Tensor got = pairs(x), want = exp(unsqueeze(x, 1) * unsqueeze(x, 0)).sum({2});
  EXPECT_TRUE(close(got.detach(), want.detach(), kFloat64, 50));
  EXPECT_TRUE(close(grad(sum(got * got), {x})[0], grad(sum(want * want), {x})[0], kFloat64, 200));
}

TEST(VmapFunction, GivesGradientsOfParametersForEachExample) {
  manual_seed(5);
  const nn::Linear m(3, 2);
  const Tensor x = randn({4, 3});
  const auto step = [&](Tensor xs) {
    return vmap([&](const Tensor& one) { return grad(square(m(one)).sum(), m.parameters()); })(xs);
  };
  const std::vector<Tensor> eager = step(x), compiled = compile(step)(x);
  ASSERT_EQ(eager.size(), 2u);
  for (int64_t k = 0; k < 4; ++k) {
    const std::vector<Tensor> want = grad(square(m(x[k])).sum(), m.parameters());
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(close(contiguous(eager[i][k]), want[i], kFloat32, 50)) << k;
      EXPECT_TRUE(close(contiguous(compiled[i][k]), want[i], kFloat32, 50)) << k;
    }
  }
}

TEST(VmapFunction, KeepsTheDerivativesOfFunctions) {
  const auto round_through =
      custom_grad([](Tensor t) { return round(t); }, [](Tensor, Tensor, Tensor dy) { return dy; });
  const Tensor a = tensor({0.4, 1.6}).requires_grad();
  const Tensor y = vmap([&](const Tensor& t) { return round_through(t) * t; })(a);
  EXPECT_TRUE(close(grad(sum(y), {a})[0], tensor({0.4, 3.6}), kFloat32, 4));
  const Tensor w = tensor({1.0, 2.0}).requires_grad();
  const Tensor z =
      vmap([&](const Tensor& t) { return checkpoint([](Tensor p, Tensor q) { return exp(p * q).sum(); }, t, w); })(a);
  EXPECT_TRUE(close(grad(sum(z), {w})[0], grad(exp(unsqueeze(a, 1) * w).sum(), {w})[0], kFloat32, 20));
  // The first of equal values gets the gradient, as for one example.
  const Tensor ties = ones({2, 1, 4, 4}).requires_grad();
  const auto pooled = [](const Tensor& t) { return max_pool2d(t, 2); };
  EXPECT_TRUE(equal(grad(sum(vmap(pooled)(ties)), {ties})[0], grad(sum(pooled(ties)), {ties})[0]));
  // An embedding's weight, by example.
  const Tensor table = randn({5, 3}).requires_grad(), at = tensor({{0, 4}, {2, 2}});
  const Tensor rows = vmap([&](const Tensor& i) { return grad(square(embedding(i, table)).sum(), {table})[0]; })(at);
  for (int64_t k = 0; k < 2; ++k)
    EXPECT_TRUE(close(contiguous(rows[k]), grad(square(embedding(at[k], table)).sum(), {table})[0], kFloat32, 8));
}

// A convolution's gradient and a pool of a batch in three dims have 8 dims for one example.
TEST(VmapFunction, WindowsOfThreeDims) {
  const Tensor x = rand({2, 1, 2, 4, 3, 5}), w = rand({2, 3, 2, 2, 2, 2});
  const auto gradient = [](const Tensor& a, const Tensor& k) {
    const Tensor own = k.requires_grad();
    return grad(sum(square(conv3d(a, own))), {own})[0];
  };
  const auto pooled = [](const Tensor& a, const Tensor&) {
    const Tensor own = a.requires_grad();
    return grad(sum(square(max_pool3d(own, 2)) + avg_pool3d(own, 2) + max_pool3d(own, 3, 1, 1).sum()), {own})[0];
  };
  const auto written = [](const Tensor& a, const Tensor& k) {
    return dynamic_update_slice(a, k.slice(0, 0, 1).slice(2, 0, 2), {0, 0, 1, 1, 0});
  };
  for (const std::function<Tensor(Tensor, Tensor)>& fn :
       {std::function<Tensor(Tensor, Tensor)>(gradient), std::function<Tensor(Tensor, Tensor)>(pooled),
        std::function<Tensor(Tensor, Tensor)>(written)}) {
    const auto all = [&](Tensor a, Tensor k) {
      return vmap([&](const Tensor& p, const Tensor& q) { return fn(p, q); })(a, k);
    };
    const Tensor got = all(x, w), want = stack({fn(x[0], w[0]), fn(x[1], w[1])});
    EXPECT_TRUE(allclose(got, want, 1e-5, 1e-6));
    EXPECT_TRUE(allclose(compile(all)(x, w), want, 1e-5, 1e-6));
  }
}

TEST(VmapFunction, NoExamples) {
  const auto f = vmap([](const Tensor& x, const Tensor& w) { return std::pair{conv2d(x, w), sum(x)}; });
  const auto [y, s] = f(zeros({0, 1, 2, 5, 5}), zeros({0, 3, 2, 3, 3}));
  EXPECT_EQ(y.shape(), (Shape{0, 1, 3, 3, 3}));
  EXPECT_EQ(s.shape(), (Shape{0}));
}

TEST(VmapFunction, AttributesOfOwnOpsMeanNothing) {
  const auto like = [](const InferCall& c) { return Types{c.in[0]}; };
  const CustomOp scale({.name = "test.scale",
                        .infer = like,
                        .dims = [](const Attrs&, auto in, auto out) { return DimMap::pointwise(in, out); },
                        .kernel =
                            [](const KernelCall& c) {
                              for (int64_t i = 0; i < c.in[0].numel(); ++i)
                                c.out[0].as<float>()[i] = c.in[0].as<float>()[i] * static_cast<float>(c.attrs.i("dim"));
                            }});
  EXPECT_TRUE(equal(vmap([&](const Tensor& t) {
                      return scale({t}, {{"dim", 64}});
                    })(ones({2, 3})),
                    full({2, 3}, 64.0)));
}

TEST(VmapFunction, ASingleIndexCountsFromTheEndInBodies) {
  const Tensor x = tensor({10.0, 20.0, 30.0}), at = tensor({-1, 0, -3});
  const std::vector<float> want{30, 10, 10};
  const auto mapped = [&](Tensor i) { return vmap([&](const Tensor& k) { return x[k]; })(i); };
  const auto scanned = [&](Tensor i) {
    return scan([&](const Tensor& c, const Tensor& k) { return std::pair{c, x[k]}; }, zeros({}), i).first;
  };
  const auto again = [&](Tensor i) {
    return stack({checkpoint([&](const Tensor& k) { return x[k]; }, i[0]), x[i[1]], x[i[2]]});
  };
  EXPECT_EQ(mapped(at).to_vector<float>(), want);
  EXPECT_EQ(compile(mapped)(at).to_vector<float>(), want);
  EXPECT_EQ(scanned(at).to_vector<float>(), want);
  EXPECT_EQ(compile(scanned)(at).to_vector<float>(), want);
  EXPECT_EQ(again(at).to_vector<float>(), want);
  EXPECT_EQ(compile(again)(at).to_vector<float>(), want);
}

TEST(VmapFunction, Errors) {
  const Tensor x = ones({3, 2});
  using testing::error_of;
  EXPECT_EQ(error_of([&] { vmap([](const Tensor& a, const Tensor& b) { return a + b; })(x, ones({4})); })
                .find("vmap: tensor 1 of the arguments is f32[4] with 4 examples in dim 0; need 3, as the arguments "
                      "before it have"),
            0u);
  EXPECT_NE(error_of([&] { vmap([](const Tensor& a) { return a + rand({2}); })(x); }).find("draws random numbers"),
            std::string::npos);
  const auto masked = [&](const Tensor& a) {
    return a + checkpoint([](Tensor t) { return dropout(t, 0.5); }, ones({2}));
  };
  EXPECT_NE(error_of([&] { vmap(masked)(x); }).find("draws random numbers"), std::string::npos);
  EXPECT_NE(error_of([&] {
              vmap([](const Tensor& a) { return reshape(a, {1, 1, 1, 1, 1, 1, 1, 2}); })(x);
            }).find("vmap: the function returns f32[1, 1, 1, 1, 1, 1, 1, 2] for one example; need at most 7 dims"),
            std::string::npos);
  EXPECT_NE(error_of([&] { vmap([](const Tensor& a) { return a; })(zeros({})); }).find("has no dim of examples"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              vmap([](const Tensor& a) { return a; }, {.in_dims = {std::nullopt}})(x);
            }).find("no argument has a dim of examples"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              vmap([](const Tensor& a) { return a; }, {.in_dims = {0, 1}})(x);
            }).find("got 2 in_dims for 1 arguments"),
            std::string::npos);
}

TEST(Kernel, IsTheFormulaOfEachElement) {
  manual_seed(2);
  const Tensor a = randn({4, 4}, {.dtype = kFloat64}), b = randn({4}, {.dtype = kFloat64});
  const auto run = [](Tensor x, Tensor y) {
    const Tensor p = x.requires_grad(), q = y.requires_grad();
    const Tensor all = kernel(
        [&](Index i, Index j) {
          return where(i > j, p(i, j) * q(j), sin(p(j, i)) + i.to(kFloat64) * 0.5 + p(3 - i, remainder(i + j, 4)));
        },
        {4, 4});
    const std::vector<Tensor> g = grad(sum(all * all), {p, q});
    return std::vector<Tensor>{all, g[0], g[1]};
  };
  const std::vector<Tensor> eager = run(a, b), compiled = compile(run)(a, b);
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>(), got = eager[0].to_vector<double>();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const double want = i > j ? x[i * 4 + j] * y[j] : std::sin(x[j * 4 + i]) + i * 0.5 + x[(3 - i) * 4 + (i + j) % 4];
      EXPECT_NEAR(got[i * 4 + j], want, 1e-14) << i << " " << j;
    }
  for (size_t k = 0; k < eager.size(); ++k) EXPECT_TRUE(close(compiled[k], eager[k], kFloat64, 100)) << k;
}

TEST(Kernel, AffineReadsAreSlices) {
  const Tensor x = randn({6, 3});
  const Graph g = capture(
      [](Tensor t) {
        return kernel([&](Index i, Index j) { return t(i * 2 + 1, j) - t(i, 2 - j) * t(i + 3, j); }, {3, 3});
      },
      x);
  int reads = 0;
  for (int32_t id = 0; id < g.size(); ++id) reads += g.node(id).op->is(kIndexing);
  EXPECT_EQ(reads, 1) << g.to_string();  // 2 - j runs backwards
}

TEST(Kernel, ReadsThroughTablesAndNoElements) {
  const Tensor line = arange(300);
  EXPECT_TRUE(equal(kernel([&](Index i) { return line(i.to(kUInt8).to(kInt64)); }, {300}), remainder(line, 256)));
  const Tensor table = tensor({10.0, 20.0, 30.0}), at = tensor({2, 0, 1, 1});
  const Tensor y = kernel([&](Index i) { return table(at(i)) + i; }, {4});
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{30, 11, 22, 23}));
  EXPECT_EQ(kernel([&](Index i, Index) { return table(i); }, {0, 2}).shape(), (Shape{0, 2}));
}

TEST(Kernel, Errors) {
  const Tensor x = ones({3, 3});
  using testing::error_of;
  EXPECT_NE(error_of([&] { kernel([&](Index i) { return x(i - 1, 0); }, {3}); }).find("index -1"), std::string::npos);
  const std::string outside = testing::placed_error_of([&] { kernel([&](Index i) { return x(i, 0); }, {4}); });
  EXPECT_NE(outside.find("3"), std::string::npos);
  EXPECT_NE(outside.find("vmap_test.cc:"), std::string::npos) << outside;
  EXPECT_NE(error_of([&] {
              kernel([&](Index i) { return x[i]; }, {3});
            }).find("kernel: the function returned f32[3]; need one number"),
            std::string::npos);
  EXPECT_NE(error_of([&] { kernel([&](Index i, Index j) { return x(i, j); }, {3}); }).find("does not take 1 indices"),
            std::string::npos);
  EXPECT_NE(error_of([&] { kernel([&](Index i) { return x(i, 0); }, {-1}); }).find("kernel: the extents are [-1]"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
