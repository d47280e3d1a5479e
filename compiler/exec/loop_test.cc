// scan(): the loop of a step against the same computation written out, eager and compiled.
#include "ops/core/functions/loop.h"

#include <gtest/gtest.h>

#include "compiler/exec/testing/test_programs.h"
#include "framework/testing/compare.h"
#include "weft.h"

namespace weft {
namespace {

struct Cell2 {
  Tensor h, c;
};

// A small recurrent cell with a product, slices of its result and two carried values.
std::pair<Cell2, Tensor> cell(const Cell2& s, const Tensor& x, const Tensor& w, const Tensor& b) {
  const std::vector<Tensor> g = chunk(x + matmul(s.h, w) + b, 2, -1);
  const Tensor c = sigmoid(g[0]) * s.c + tanh(g[1]);
  const Tensor h = tanh(c) * s.h.size(-1);
  return {{h, c}, h * x.size(-1)};
}

struct Data {
  Tensor x, w, b, h, c;
};
Data data(int64_t time, DType dtype = kFloat64) {
  manual_seed(3);
  const auto make = [&](const Shape& s) { return (randn(s) * 0.5).to(dtype); };
  return {make({time, 4, 10}), make({5, 10}), make({10}), make({4, 5}), make({4, 5})};
}

// loss, gradients of x, w, b, h, c, last h.
std::vector<Tensor> by_scan(const Data& d, bool reverse) {
  const Tensor x = d.x.requires_grad(), w = d.w.requires_grad(), b = d.b.requires_grad(), h = d.h.requires_grad(),
               c = d.c.requires_grad();
  auto [y, last] =
      scan([&](const Cell2& s, const Tensor& xt) { return cell(s, xt, w, b); }, Cell2{h, c}, x, {.reverse = reverse});
  const Tensor loss = sum(square(y)) + sum(last.c * last.h);
  std::vector<Tensor> out = grad(loss, {x, w, b, h, c});
  out.insert(out.begin(), {loss, y, last.h});
  return out;
}

std::vector<Tensor> written_out(const Data& d, bool reverse) {
  const Tensor x = d.x.requires_grad(), w = d.w.requires_grad(), b = d.b.requires_grad(), h = d.h.requires_grad(),
               c = d.c.requires_grad();
  Cell2 s{h, c};
  std::vector<Tensor> ys(static_cast<size_t>(x.size(0)));
  for (int64_t i = 0; i < x.size(0); ++i) {
    const int64_t t = reverse ? x.size(0) - 1 - i : i;
    auto [next, y] = cell(s, select(x, 0, t), w, b);
    s = next;
    ys[static_cast<size_t>(t)] = y;
  }
  const Tensor loss = sum(square(stack(ys))) + sum(s.c * s.h);
  std::vector<Tensor> out = grad(loss, {x, w, b, h, c});
  out.insert(out.begin(), {loss, stack(ys), s.h});
  return out;
}

TEST(Scan, IsTheLoopWrittenOut) {
  for (int64_t time : {1, 2, 7})
    for (bool reverse : {false, true}) {
      SCOPED_TRACE(str_cat(time, reverse ? " reverse" : ""));
      const Data d = data(time);
      const std::vector<Tensor> got = by_scan(d, reverse), want = written_out(d, reverse);
      for (size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_TRUE(allclose(got[i], want[i], 1e-10, 1e-12)) << got[i] << want[i];
      }
    }
}

TEST(Scan, CompiledHasTheBitsOfEager) {
  for (DType dtype : {kFloat64, kFloat32, kBFloat16})
    for (bool reverse : {false, true}) {
      const Data d = data(6, dtype);
      auto step = compile(
          [&](Tensor x, Tensor w, Tensor b, Tensor h, Tensor c) {
            return by_scan({x, w, b, h, c}, reverse);
          },
          {.numerics = "eager"});
      const std::vector<Tensor> want = by_scan(d, reverse), got = step(d.x, d.w, d.b, d.h, d.c);
      for (size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(str_cat(dtype, " ", i));
        EXPECT_TRUE(equal(got[i], want[i])) << got[i] << want[i];
      }
    }
}

// 64 columns are two panels of the widest kernel. The weight is used as it is and transposed, with and without a sum
// after the product, and its gradient is taken.
TEST(Scan, WeightsThatArePackedOnceKeepTheBits) {
  for (auto [rows, d] : {std::pair<int64_t, int64_t>{3, 64}, {8, 64}, {8, 128}, {40, 128}}) {
    manual_seed(4);
    const Tensor x = randn({5, rows, d}), w = randn({d, d}) * 0.1, v = randn({d, d}) * 0.1, h = randn({rows, d});
    const auto run = [](const Tensor& x, const Tensor& weight, const Tensor& v, const Tensor& h) {
      const Tensor w = weight.requires_grad();
      auto [y, last] = scan(
          [&](const Tensor& s, const Tensor& xt) {
            const Tensor next = tanh(matmul(s, transpose(w, 0, 1)) + matmul(xt, v));
            return std::pair(next, matmul(next, w) * 0.5);
          },
          h, x);
      return std::vector{y, last, grad(sum(square(y)) + sum(last), {w})[0]};
    };
    auto step = compile([&](Tensor x, Tensor w, Tensor v, Tensor h) { return run(x, w, v, h); });
    const std::vector<Tensor> want = run(x, w, v, h), got = step(x, w, v, h);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(equal(got[i], want[i])) << rows << " " << d << " " << i;
    // A few rows are multiplied without packing, except short ones.
    const bool packs = step.graph("fused").to_string().find("= copy") != std::string::npos;
    EXPECT_EQ(packs, rows > (d < 128 ? 4 : 16)) << step.graph("fused").to_string();
  }
}

TEST(Scan, GraphsDoNotGrowWithTheNumberOfIterations) {
  const auto nodes = [](int64_t time) {
    const Data d = data(time);
    auto step = compile([](Tensor x, Tensor w, Tensor b, Tensor h, Tensor c) {
      return by_scan({x, w, b, h, c}, false);
    });
    step(d.x, d.w, d.b, d.h, d.c);
    return step.graph("fused").size();
  };
  EXPECT_EQ(nodes(3), nodes(300));
}

TEST(Scan, IsDifferentiableTwice) {
  const Data d = data(4);
  const auto twice = [&](bool written) {
    const Tensor w = d.w.requires_grad(), x = d.x.requires_grad();
    Cell2 s{d.h, d.c};
    Tensor y;
    if (written) {
      std::vector<Tensor> ys;
      for (int64_t t = 0; t < 4; ++t) {
        auto [next, out] = cell(s, select(x, 0, t), w, d.b);
        s = next;
        ys.push_back(out);
      }
      y = stack(ys);
    } else {
      y = scan([&](const Cell2& c, const Tensor& xt) { return cell(c, xt, w, d.b); }, s, x).first;
    }
    const std::vector<Tensor> g = grad(sum(square(y)), {w, x}, {.create_graph = true});
    return grad(sum(square(g[0])) + sum(g[1] * g[1] * g[1]), {w, x});
  };
  const std::vector<Tensor> got = twice(false), want = twice(true);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(allclose(got[i], want[i], 1e-9, 1e-10)) << got[i] << want[i];
}

TEST(Scan, GradientsInsideAreConstants) {
  // Gradient descent in the loop: without create_graph, the derivative by the start sees no second derivative.
  const auto run = [](const Tensor& start, bool written) {
    const Tensor h0 = start.requires_grad();
    const auto next = [](const Tensor& h) {
      const Tensor x = h.requires_grad();
      return h - 0.1 * grad(sum(x * x * x), std::vector<Tensor>{x})[0];
    };
    Tensor h = h0;
    if (written) {
      for (int i = 0; i < 3; ++i) h = next(h);
    } else {
      h = scan([&](const Tensor& s, const Tensor& t) { return std::pair{next(s), t}; }, h0, zeros({3})).second;
    }
    return grad(sum(square(h)), std::vector<Tensor>{h0})[0];
  };
  const Tensor start = tensor({0.5, -1.0, 2.0}).to(kFloat64);
  EXPECT_TRUE(allclose(run(start, false), run(start, true), 1e-12, 1e-12)) << run(start, false) << run(start, true);
}

TEST(Scan, ExactSumsUnroll) {
  const Data d = data(5, kFloat32);
  auto step = compile(
      [](Tensor x, Tensor w, Tensor b, Tensor h, Tensor c) {
        return by_scan({x, w, b, h, c}, false);
      },
      {.verify_numerics = true});
  EXPECT_TRUE(allclose(step(d.x, d.w, d.b, d.h, d.c)[0], by_scan(d, false)[0], 1e-4, 1e-4));
  EXPECT_EQ(step.graph("joint").to_string().find("loop("), std::string::npos);
}

TEST(Scan, RandomNumbersDifferInEachIteration) {
  const auto draw = [] {
    return scan(
               [](const Tensor& s, const Tensor&) {
                 return std::pair{s + 1, uniform({3}, 0, 1)};
               },
               zeros({}), zeros({5}))
        .first;
  };
  manual_seed(1);
  const Tensor a = draw();
  EXPECT_FALSE(equal(select(a, 0, 0), select(a, 0, 1)));
  EXPECT_FALSE(equal(select(a, 0, 1), select(a, 0, 4)));
  const auto nested = [&] {
    return scan([&](const Tensor& s, const Tensor&) { return std::pair{s, draw()}; }, zeros({}), zeros({2})).first;
  };
  const Tensor both = nested();
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t k = 0; k < 5; ++k) EXPECT_FALSE(equal(both[0][i], both[1][k])) << i << k;
  auto step = compile(draw);
  auto plain = compile(draw, {.enabled = false});
  manual_seed(2);
  const Tensor first = step(), second = step();
  EXPECT_FALSE(equal(first, second));
  manual_seed(2);
  EXPECT_TRUE(equal(first, plain()));
  EXPECT_TRUE(equal(second, plain()));
}

TEST(Scan, ResultsMayBeOperands) {
  const Data d = data(3);
  const auto run = [&](const Tensor& x, const Tensor& h) {
    // The carry is swapped, a slice is returned as it is, and a shared value is returned in each iteration.
    auto [y, last] = scan(
        [&](const std::pair<Tensor, Tensor>& s, const Tensor& xt) {
          return std::pair{std::pair{s.second, s.first}, std::array<Tensor, 3>{xt, h, transpose(xt, 0, 1)}};
        },
        std::pair{h, h + 1}, x);
    return std::vector<Tensor>{y[0], y[1], y[2], last.first, last.second};
  };
  const std::vector<Tensor> eager = run(d.x, d.h), compiled = compile(run)(d.x, d.h);
  EXPECT_TRUE(equal(eager[0], d.x));
  EXPECT_TRUE(equal(eager[2], transpose(d.x, 1, 2)));
  EXPECT_TRUE(equal(eager[3], d.h + 1));
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(equal(eager[i], compiled[i])) << i;
}

// A stacked carry is stored in its result, and equal results are stored once.
TEST(Scan, StackedCarriesHaveTheBitsOfEager) {
  for (bool reverse : {false, true})
    for (bool strided : {false, true}) {
      const auto run = [&](const Tensor& x, const Tensor& h) {
        const Tensor start = strided ? transpose(h, 0, 1) : h;
        using State = std::array<Tensor, 5>;
        auto [y, last] = scan(
            [](const State& s, const Tensor& xt) {
              const Tensor next = tanh(s[0] + xt), sums = s[1] + next * s[2];
              // Carries stacked before, after, both, swapped, and never changed.
              return std::pair{State{next, sums, s[3], s[2] * 0.5, s[4]},
                               std::array<Tensor, 8>{s[0], next, next, sums, sums * 2, s[2], s[0], s[4]}};
            },
            State{start, start * 2, start + 1, start - 1, start}, x, {.reverse = reverse});
        std::vector<Tensor> all(y.begin(), y.end());
        all.insert(all.end(), last.begin(), last.end());
        return all;
      };
      auto step = compile(run, {.numerics = "eager"});
      for (int64_t time : {1, 2, 5}) {
        SCOPED_TRACE(str_cat(time, reverse ? " reverse" : "", strided ? " strided" : ""));
        manual_seed(6);
        const Tensor x = randn({time, 3, 4}), h = randn(strided ? Shape{4, 3} : Shape{3, 4});
        const std::vector<Tensor> want = run(x, h), got = step(x, h);
        for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(equal(got[i], want[i])) << i << got[i] << want[i];
        const Graph& fused = step.graph("fused");
        size_t results = 0;
        for (int32_t id = 0; id < fused.size(); ++id)
          if (fused.node(id).op == &loop_op) results += fused.node(id).outputs.size();
        EXPECT_EQ(results, 5 + 6);
      }
    }
}

TEST(Scan, LoopsInLoops) {
  const Data d = data(3);
  const auto run = [](const Tensor& x) {
    const Tensor xs = x.requires_grad();
    auto [y, last] = scan(
        [](const Tensor& s, const Tensor& xt) {
          auto [inner, end] = scan([](const Tensor& a, const Tensor& r) { return std::pair{a * r, a + r}; }, s, xt);
          return std::pair{tanh(end), inner};
        },
        ones({10}, {.dtype = kFloat64}), xs);
    const Tensor loss = sum(y) + sum(last);
    return std::vector<Tensor>{loss, grad(loss, {xs})[0]};
  };
  const std::vector<Tensor> eager = run(d.x), compiled = compile(run)(d.x);
  EXPECT_TRUE(equal(eager[0], compiled[0]));
  EXPECT_TRUE(equal(eager[1], compiled[1]));
}

TEST(Scan, OperandsWithAnyStrides) {
  const Data d = data(5);
  const auto run = [](const Tensor& x, const Tensor& h, const Tensor& w) {
    return scan([&](const Tensor& s, const Tensor& xt) { return std::pair{s + matmul(xt, w), s * 2}; }, h, x);
  };
  const Tensor x = transpose(d.x, 0, 2), h = transpose(zeros({3, 4}, {.dtype = kFloat64}), 0, 1);
  const Tensor weight = transpose(ones({3, 5}, {.dtype = kFloat64}), 0, 1);
  auto [y, last] = run(x, h, weight);
  auto [yc, lc] = compile(run)(x, h, weight);
  EXPECT_TRUE(equal(y, yc));
  EXPECT_TRUE(equal(last, lc));
}

TEST(Scan, LengthIsAnOption) {
  auto [none, last] = scan(
      [](const Tensor& s, const std::vector<Tensor>&) {
        return std::pair{s * 2, std::vector<Tensor>{}};
      },
      full({2}, 1.0), std::vector<Tensor>{}, {.length = 10});
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(last.to_vector<float>(), (std::vector<float>{1024, 1024}));
}

TEST(Scan, GradientsOfParametersInsideAnEagerLoop) {
  const Parameter p(tensor({2.0, 3.0}), "p");
  const auto [g, last] = scan(
      [&](const Tensor& s, const Tensor& x) {
        return std::pair{s, grad(square(p * x).sum(), std::vector<Parameter>{p})[0]};
      },
      zeros({}), tensor({{1.0, 1.0}, {2.0, 0.0}}));
  EXPECT_TRUE(equal(g, tensor({{4.0, 6.0}, {16.0, 0.0}})));
}

TEST(Scan, Errors) {
  const auto message = [](auto fn) {
    try {
      fn();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const Tensor x = zeros({3, 2});
  EXPECT_NE(
      message([&] {
        scan(
            [](const Tensor& s, const Tensor& t) {
              return std::pair{cat({s, t}, 0), t};
            },
            zeros({2}).requires_grad(), x);
      }).find("scan: carry 0 is f32[2] before an iteration and f32[4] after it; need one type; at compiler/exec/"),
      std::string::npos);
  EXPECT_NE(
      message([&] {
        scan([](const Tensor& s, const std::vector<Tensor>&) { return std::pair{s, s}; }, x, std::vector<Tensor>{});
      }).find("need options.length"),
      std::string::npos);
  EXPECT_NE(message([&] {
              scan(
                  [](const std::vector<Tensor>& s, const Tensor& t) {
                    return std::pair{std::vector<Tensor>{s[0], t}, t};
                  },
                  std::vector<Tensor>{zeros({2})}, x);
            }).find("scan: the function got a carry of 1 tensors and returned 2; need equal numbers"),
            std::string::npos);
  EXPECT_NE(message([&] {
              scan([](const Tensor& s, const Tensor&) { return std::pair{s, Tensor()}; }, zeros({2}), x);
            }).find("scan: the function returned an undefined tensor; need one with a value"),
            std::string::npos);
  EXPECT_NE(message([&] {
              scan(
                  [](const Tensor& s, const std::vector<Tensor>& t) {
                    return std::pair{s, t[0]};
                  },
                  zeros({2}), std::vector<Tensor>{x, zeros({4})});
            }).find("is f32[4]; need 3 slices"),
            std::string::npos);
  EXPECT_NE(
      message([&] {
        scan([](const Tensor& s, const Tensor& t) { return std::pair{s * t.item<float>(), t}; }, zeros({}), zeros({3}));
      }).find("at compiler/exec/loop_test.cc"),
      std::string::npos);
}

// ---- while_loop() ----

struct Count {
  Tensor n, steps;
};
// The steps of 3n + 1 until 1.
Tensor collatz(const Tensor& start, int64_t most = 120) {
  return while_loop([](const Count& c) { return c.n > 1; },
                    [](const Count& c) {
                      return Count{where(eq(bit_and(c.n, 1), 1), c.n * 3 + 1, floor_divide(c.n, 2)), c.steps + 1};
                    },
                    Count{start, zeros({}, {.dtype = kInt64})}, {.max_iterations = most})
      .steps;
}

TEST(WhileLoop, EndsWithItsCondition) {
  auto step = compile([](Tensor n) { return collatz(n); });
  auto unrolled = compile([](Tensor n) { return collatz(n); }, {.verify_numerics = true});
  for (const auto& [n, steps] : {std::pair{1, 0}, {2, 1}, {3, 7}, {6, 8}, {27, 111}, {97, 118}, {255, 47}}) {
    const Tensor start = full({}, n, {.dtype = kInt64});
    EXPECT_EQ(collatz(start).item<int64_t>(), steps);
    EXPECT_EQ(step(start).item<int64_t>(), steps);
    EXPECT_EQ(unrolled(start).item<int64_t>(), steps);
  }
  const Tensor many = tensor({1, 2, 3, 6, 27});
  const auto each = vmap([](const Tensor& n) { return collatz(n, 111); });
  EXPECT_EQ(each(many).to_vector<int>(), (std::vector<int>{0, 1, 7, 8, 111}));
  EXPECT_EQ(compile([&](Tensor n) { return each(n); })(many).to_vector<int>(), (std::vector<int>{0, 1, 7, 8, 111}));
}

// The body does not run once the condition is false: it would divide by zero.
TEST(WhileLoop, RunsNothingAfterItsEnd) {
  struct Pair {
    Tensor a, b;
  };
  const auto gcd = [](Tensor a, Tensor b) {
    return while_loop([](const Pair& p) { return p.b != 0; },
                      [](const Pair& p) {
                        return Pair{p.b, remainder(p.a, p.b)};
                      },
                      Pair{a, b})
        .a;
  };
  auto step = compile(gcd);
  for (const auto& [a, b, want] : {std::array{12, 18, 6}, {7, 0, 7}, {35, 64, 1}, {0, 0, 0}}) {
    const Tensor x = full({}, a, {.dtype = kInt64}), y = full({}, b, {.dtype = kInt64});
    EXPECT_EQ(gcd(x, y).item<int>(), want);
    EXPECT_EQ(step(x, y).item<int>(), want);
  }
}

// Where all iterations run, those after the end get the first carry: the last one would divide by zero, or have no
// finite derivative.
TEST(WhileLoop, IsDefinedAfterItsEnd) {
  const auto gcd = [](Tensor a, Tensor b) {
    return while_loop([](const auto& p) { return p[1] != 0; },
                      [](const auto& p) {
                        return std::array<Tensor, 2>{p[1], remainder(p[0], p[1])};
                      },
                      std::array<Tensor, 2>{a, b}, {.max_iterations = 20})[0];
  };
  const Tensor a = tensor({12, 35, 9}), b = tensor({18, 64, 3});
  EXPECT_EQ(vmap(gcd)(a, b).to_vector<int>(), (std::vector<int>{6, 1, 3}));
  auto unrolled = compile(gcd, {.verify_numerics = true});
  EXPECT_EQ(unrolled(select(a, 0, 0), select(b, 0, 0)).item<int>(), 6);

  // 4 -> 1 -> 0: d/dx (sqrt(sqrt(x) - 1) - 1) = 1 / (2 sqrt(1)) 1 / (2 sqrt(4)).
  const auto slope = [](Tensor x) {
    const Tensor v = x.requires_grad();
    const Tensor y = while_loop([](const Tensor& t) { return t > 0.0; }, [](const Tensor& t) { return sqrt(t) - 1.0; },
                                v, {.max_iterations = 5});
    return grad(y, {v})[0];
  };
  const Tensor four = full({}, 4.0, {.dtype = kFloat64});
  EXPECT_EQ(slope(four).item<double>(), 0.125);
  EXPECT_EQ(compile(slope)(four).item<double>(), 0.125);
}

// Random ops draw new numbers in each iteration, and the loop ends by them; a carry may be a view.
TEST(WhileLoop, BodiesDrawNumbersAndCarriesAreViews) {
  const auto walk = [](Tensor start) {
    return while_loop([](const Tensor& t) { return sum(t) < 10.0; },
                      [](const Tensor& t) { return t + uniform(t.shape(), 0.25, 1.0); }, start);
  };
  const Tensor start = permute(zeros({3, 2}), {1, 0});
  manual_seed(7);
  const Tensor eager = compile(walk, {.enabled = false})(start);
  manual_seed(7);
  const Tensor compiled = compile(walk)(start);
  EXPECT_TRUE(testing::same_bits(contiguous(eager), contiguous(compiled)));
  EXPECT_GE(sum(eager).item<double>(), 10.0);
  EXPECT_NE(eager(0, 0).item<double>(), eager(1, 2).item<double>());
}

TEST(WhileLoop, ThrowsWhereItDoesNotEnd) {
  const std::string want =
      "while_loop: the condition still holds after 110 iterations; need a condition that ends, or a larger "
      "WhileOptions::max_iterations";
  const Tensor start = full({}, 27, {.dtype = kInt64});
  auto step = compile([](Tensor n) { return collatz(n, 110); });
  auto unrolled = compile([](Tensor n) { return collatz(n, 110); }, {.verify_numerics = true});
  EXPECT_EQ(testing::error_of([&] { collatz(start, 110); }), want);
  EXPECT_EQ(testing::error_of([&] { step(start).item<int64_t>(); }), want);
  EXPECT_EQ(testing::error_of([&] { unrolled(start).item<int64_t>(); }), want);
  EXPECT_EQ(step(full({}, 26, {.dtype = kInt64})).item<int64_t>(), 10);
  EXPECT_EQ(collatz(full({}, 1, {.dtype = kInt64}), 0).item<int64_t>(), 0);
  EXPECT_NE(testing::error_of([&] { collatz(start, 0); }).find("still holds after 0 iterations"), std::string::npos);
}

// x -> a x + sin(x) until the sum passes 100: the number of iterations depends on x.
Tensor grown(const Tensor& x, const Tensor& a) {
  return while_loop([](const Tensor& v) { return sum(v) < 100.0; }, [&](const Tensor& v) { return v * a + sin(v); }, x,
                    {.max_iterations = 12});
}

TEST(WhileLoop, HasGradients) {
  const auto by_loop = [](Tensor x, Tensor a) {
    const Tensor u = x.requires_grad(), v = a.requires_grad();
    const Tensor loss = sum(square(grown(u, v)));
    std::vector<Tensor> out = grad(loss, {u, v});
    out.push_back(loss);
    return out;
  };
  auto step = compile(by_loop);
  for (const double begin : {0.5, 3.0, 200.0}) {
    const Tensor x = (arange(4) + begin).to(kFloat64), a = full({}, 1.7, {.dtype = kFloat64});
    const Tensor u = x.requires_grad(), v = a.requires_grad();
    Tensor y = u;
    while (sum(y).item<double>() < 100.0) y = y * v + sin(y);
    const Tensor loss = sum(square(y));
    std::vector<Tensor> want = grad(loss, {u, v});
    want.push_back(loss);
    const std::vector<Tensor> eager = by_loop(x, a), compiled = step(x, a);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(testing::close(eager[i], want[i], kFloat64, 50)) << i << " from " << begin;
      EXPECT_TRUE(testing::close(compiled[i], want[i], kFloat64, 50)) << i << " from " << begin;
    }
    EXPECT_TRUE(equal(grown(x, a), y));
    EXPECT_TRUE(equal(compile([](Tensor p, Tensor q) { return grown(p, q); })(x, a), y));
  }
}

TEST(WhileLoop, Errors) {
  using testing::error_of;
  const Tensor x = ones({3});
  const auto once = [](const Tensor& t) { return t; };
  EXPECT_EQ(error_of([&] { while_loop([](const Tensor& t) { return t > 0.0; }, once, x); }),
            "while_loop: the condition is bool[3]; need bool[]");
  EXPECT_EQ(error_of([&] {
              while_loop([](const Tensor& t) { return sum(t) > 0.0; }, [](const Tensor& t) { return t.to(kFloat64); },
                         x);
            }),
            "while_loop: carry 0 is f32[3] before an iteration and f64[3] after it; need one type");
  EXPECT_EQ(error_of([&] {
              while_loop([](const Tensor& t) { return sum(t) > 0.0; }, [](const Tensor& t) { return sum(t); }, x);
            }),
            "while_loop: carry 0 is f32[3] before an iteration and f32[] after it; need one type");
  EXPECT_EQ(
      error_of([&] { while_loop([](const Tensor& t) { return sum(t) > 0.0; }, once, x, {.max_iterations = -1}); }),
      "while_loop: max_iterations is -1; need 0 or more");
  EXPECT_EQ(error_of([&] { while_loop([](const Tensor& t) { return sum(t) > 0.0; }, once, Tensor()); }),
            "while_loop: the carry is an undefined tensor; need one with a value");
}

}  // namespace
}  // namespace weft
