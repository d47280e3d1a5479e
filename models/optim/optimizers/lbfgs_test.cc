#include "models/optim/optimizers/lbfgs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft::optim {
namespace {

using weft::testing::error_of;

// Rosenbrock's function of two parameters of one element each; its minimum is 0 at (1, 1).
struct Valley {
  Parameter x{full({}, -1.5, {.dtype = kFloat64}), "x"}, y{full({1}, 2, {.dtype = kFloat64}), "y"};
  Tensor loss() const {
    const Tensor a = x.value(), b = y.value();
    return sum(square(1.0 - a) + square(b - square(a)) * 100.0);
  }
  double at(const Parameter& p) const { return p.value().to_vector<double>()[0]; }
};

TEST(Lbfgs, FindsTheEndOfAValley) {
  Valley v;
  LBFGS opt({v.x, v.y}, {.max_iter = 100, .line_search_fn = "strong_wolfe"});
  const Tensor first = opt.step([&] { return v.loss(); });
  EXPECT_EQ(first.item<double>(), 6.25 + 100 * 0.0625);
  // L-BFGS stops when the loss changes by less than 1e-9: the parameters are within its root, times the valley's shape.
  EXPECT_NEAR(v.at(v.x), 1, 1e-4);
  EXPECT_NEAR(v.at(v.y), 1, 1e-4);
  EXPECT_LT(opt.evaluations(), 80);
}

// The loop of torch.optim.LBFGS for a quadratic, without a line search, written with plain numbers.
TEST(Lbfgs, EqualsTheTwoLoopRecursion) {
  const double c[3] = {1, 4, 0.5}, t0[3] = {2, -1, 3};
  Parameter p(Tensor::from_vector<double>({2, -1, 3}, {3}), "p");
  const Tensor weights = Tensor::from_vector<double>({1, 4, 0.5}, {3});
  LBFGS opt({p}, {.lr = 0.5, .max_iter = 3, .max_eval = 10, .history_size = 2});
  std::vector<double> x(t0, t0 + 3), g(3), d(3), last(3);
  std::vector<std::vector<double>> ys, ss;
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  };
  double scale = 1, length = 0;
  int iteration = 0;
  for (int step = 0; step < 2; ++step) {
    opt.step([&] { return sum(square(p.value()) * weights) * 0.5; });
    for (int k = 0; k < 3; ++k) {
      for (int i = 0; i < 3; ++i) g[i] = c[i] * x[i];
      if (++iteration == 1) {
        for (int i = 0; i < 3; ++i) d[i] = -g[i];
      } else {
        std::vector<double> y(3), s(3);
        for (int i = 0; i < 3; ++i) y[i] = g[i] - last[i], s[i] = d[i] * length;
        if (ys.size() == 2) ys.erase(ys.begin()), ss.erase(ss.begin());
        ys.push_back(y), ss.push_back(s);
        scale = dot(y, s) / dot(y, y);
        std::vector<double> q(3), al(ys.size());
        for (int i = 0; i < 3; ++i) q[i] = -g[i];
        for (size_t j = ys.size(); j-- > 0;) {
          al[j] = dot(ss[j], q) / dot(ys[j], ss[j]);
          for (int i = 0; i < 3; ++i) q[i] -= al[j] * ys[j][i];
        }
        for (double& v : q) v *= scale;
        for (size_t j = 0; j < ys.size(); ++j) {
          const double be = dot(ys[j], q) / dot(ys[j], ss[j]);
          for (int i = 0; i < 3; ++i) q[i] += ss[j][i] * (al[j] - be);
        }
        d = q;
      }
      last = g;
      length = iteration == 1 ? 0.5 * std::min(1.0, 1 / (std::fabs(g[0]) + std::fabs(g[1]) + std::fabs(g[2]))) : 0.5;
      for (int i = 0; i < 3; ++i) x[i] += length * d[i];
    }
    const std::vector<double> got = p.value().to_vector<double>();
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(got[i], x[i], 1e-13) << step;
  }
}

TEST(Lbfgs, TakesGradientsAndResumesExactly) {
  Valley a, b;
  const LBFGSOptions options{.max_iter = 4, .line_search_fn = "strong_wolfe"};
  LBFGS first({a.x, a.y}, options), second({b.x, b.y}, options);
  first.step([&] { return a.loss(); });
  second.load_state_dict(first.state_dict());
  b.x.set(a.x.value()), b.y.set(a.y.value());
  first.step([&] { return a.loss(); });
  second.step([&] {
    const Tensor loss = b.loss();
    return std::pair(loss, grad(loss, std::vector<Parameter>{b.x, b.y}));
  });
  EXPECT_EQ(a.at(a.x), b.at(b.x));
  EXPECT_EQ(a.at(a.y), b.at(b.y));
  EXPECT_EQ(first.evaluations(), second.evaluations());
}

TEST(Lbfgs, SkipsFrozenParameters) {
  Valley v;
  v.x.requires_grad(false);
  LBFGS opt({v.x, v.y}, {.max_iter = 30, .line_search_fn = "strong_wolfe"});
  opt.step([&] { return v.loss(); });
  EXPECT_EQ(v.at(v.x), -1.5);
  EXPECT_NEAR(v.at(v.y), 2.25, 1e-6);
}

TEST(Lbfgs, RefusesWhatDoesNotFit) {
  Valley v;
  EXPECT_EQ(error_of([&] { LBFGS({v.x, v.x}); }), "LBFGS: parameter 'x' is given twice; need each once");
  EXPECT_EQ(error_of([&] { LBFGS({v.x}, {.line_search_fn = "wolfe"}); }),
            "LBFGS: line_search_fn is 'wolfe'; need \"strong_wolfe\" or nothing");
  EXPECT_EQ(error_of([] { LBFGS({}); }), "LBFGS: got no parameters with elements; need one or more");
  LBFGS opt({v.x, v.y});
  EXPECT_EQ(
      error_of([&] { opt.step([&] { return std::pair(v.loss(), grad(v.loss(), std::vector<Parameter>{v.x})); }); }),
      "LBFGS: the closure returned 1 gradients; need 2, one for each of parameters()");
  auto state = opt.state_dict();
  state["x"] = ones({1});
  EXPECT_EQ(error_of([&] { opt.load_state_dict(state); }),
            "load_state_dict: LBFGS: got 3 entries; need the 2 of state_dict()");
  EXPECT_EQ(error_of([&] { capture([&](Tensor t) { return opt.step([&] { return v.loss() + t; }); }, ones({})); }),
            "LBFGS: step called inside a compiled function, but its loop reads losses; need a call outside, whose "
            "closure may call a compiled function");
}

}  // namespace
}  // namespace weft::optim
