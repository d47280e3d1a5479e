// Adam and its relatives, RMSprop, Adagrad and Adafactor against their formulas as PyTorch documents them, in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "framework/testing/compare.h"
#include "models/optim/optim.h"
#include "ops/core/core.h"

namespace weft::optim {
namespace {

using weft::testing::error_of;
using Vector = std::vector<double>;

constexpr int kSteps = 5;
const Vector kStart = {0.5, -1.25, 2.0, -0.03125, 0.75, 1.5};
double gradient(int t, int i) { return 0.3 * std::sin(1.7 * t + 0.9 * i + 0.4) + 0.05 * i - 0.1; }
Vector gradients(int t) {
  Vector g;
  for (int i = 0; i < 6; ++i) g.push_back(gradient(t, i));
  return g;
}

// The parameters after five steps, in a tensor of this shape.
template <class Opt, class Options>
Vector run(const Options& options, DType dtype, const Shape& shape) {
  Parameter p(Tensor::from_vector<double>(kStart, shape).to(dtype), "p");
  Opt opt({p}, options);
  for (int t = 0; t < kSteps; ++t) opt.step({Tensor::from_vector<double>(gradients(t), shape).to(dtype)});
  return p.value().to_vector<double>();
}

template <class Opt, class Options>
void expect_vector(const Options& o, const Vector& want, const Shape& shape = {6}) {
  const Vector wide = run<Opt>(o, kFloat64, shape), narrow = run<Opt>(o, kFloat32, shape);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(wide[i], want[i], 1e-13) << i;
    EXPECT_NEAR(narrow[i], want[i], 200 * 0x1p-24 * std::max(std::fabs(want[i]), 0.1)) << i;
  }
}

// Five steps of an element: f(p, g, t) -> p, with t from 1 and state in its closure.
using Element = std::function<double(double p, double g, int t)>;
template <class Opt, class Options>
void expect_element(const Options& o, const std::function<Element()>& make) {
  Vector want;
  for (int i = 0; i < 6; ++i) {
    const Element f = make();
    double p = kStart[i];
    for (int t = 0; t < kSteps; ++t) p = f(p, gradient(t, i), t + 1);
    want.push_back(p);
  }
  expect_vector<Opt>(o, want);
}

TEST(Optimizers, AdamEqualsItsFormula) {
  for (bool amsgrad : {false, true})
    for (double decay : {0.0, 0.25}) {
      const AdamOptions o{.lr = 0.05, .betas = {0.8, 0.9}, .eps = 1e-3, .weight_decay = decay, .amsgrad = amsgrad};
      const auto adam = [&](bool decoupled) {
        return [=] {
          return [=, m = 0.0, v = 0.0, most = 0.0](double p, double g, int t) mutable {
            if (decoupled) p *= 1 - o.lr * decay;
            if (!decoupled) g += decay * p;
            m = 0.8 * m + 0.2 * g;
            v = 0.9 * v + 0.1 * g * g;
            most = std::max(most, v);
            const double size = std::sqrt(amsgrad ? most : v) / std::sqrt(1 - std::pow(0.9, t)) + o.eps;
            return p - o.lr / (1 - std::pow(0.8, t)) * m / size;
          };
        };
      };
      expect_element<Adam>(o, adam(false));
      expect_element<AdamW>(
          AdamWOptions{.lr = 0.05, .betas = {0.8, 0.9}, .eps = 1e-3, .weight_decay = decay, .amsgrad = amsgrad},
          adam(true));
    }
}

TEST(Optimizers, AdamaxEqualsItsFormula) {
  const AdamaxOptions o{.lr = 0.05, .betas = {0.8, 0.9}, .eps = 1e-3, .weight_decay = 0.125};
  expect_element<Adamax>(o, [&] {
    return [=, m = 0.0, u = 0.0](double p, double g, int t) mutable {
      g += o.weight_decay * p;
      m = 0.8 * m + 0.2 * g;
      u = std::max(0.9 * u, std::fabs(g) + o.eps);
      return p - o.lr / (1 - std::pow(0.8, t)) * m / u;
    };
  });
}

TEST(Optimizers, NAdamEqualsItsFormula) {
  for (bool decoupled : {false, true}) {
    const NAdamOptions o{.lr = 0.05,
                         .betas = {0.8, 0.9},
                         .eps = 1e-3,
                         .weight_decay = 0.125,
                         .momentum_decay = 0.5,
                         .decoupled_weight_decay = decoupled};
    expect_element<NAdam>(o, [&] {
      return [=, m = 0.0, v = 0.0, product = 1.0](double p, double g, int t) mutable {
        if (decoupled) p *= 1 - o.lr * o.weight_decay;
        if (!decoupled) g += o.weight_decay * p;
        const double mu = 0.8 * (1 - 0.5 * std::pow(0.96, t * 0.5));
        const double next = 0.8 * (1 - 0.5 * std::pow(0.96, (t + 1) * 0.5));
        product *= mu;
        m = 0.8 * m + 0.2 * g;
        v = 0.9 * v + 0.1 * g * g;
        const double size = std::sqrt(v / (1 - std::pow(0.9, t))) + o.eps;
        return p - o.lr * (1 - mu) / (1 - product) * g / size - o.lr * next / (1 - product * next) * m / size;
      };
    });
  }
}

TEST(Optimizers, RMSpropEqualsItsFormula) {
  for (bool centered : {false, true})
    for (double momentum : {0.0, 0.5}) {
      const RMSpropOptions o{
          .lr = 0.05, .alpha = 0.75, .eps = 1e-3, .weight_decay = 0.125, .momentum = momentum, .centered = centered};
      expect_element<RMSprop>(o, [&] {
        return [=, v = 0.0, a = 0.0, b = 0.0](double p, double g, int) mutable {
          g += o.weight_decay * p;
          v = 0.75 * v + 0.25 * g * g;
          a = 0.75 * a + 0.25 * g;
          b = momentum * b + g / (std::sqrt(centered ? v - a * a : v) + o.eps);
          return p - o.lr * b;
        };
      });
    }
}

TEST(Optimizers, AdagradEqualsItsFormula) {
  const AdagradOptions o{
      .lr = 0.25, .lr_decay = 0.5, .weight_decay = 0.125, .initial_accumulator_value = 0.0625, .eps = 1e-3};
  expect_element<Adagrad>(o, [&] {
    return [=, s = 0.0625](double p, double g, int t) mutable {
      g += o.weight_decay * p;
      s += g * g;
      return p - o.lr / (1 + (t - 1) * o.lr_decay) * g / (std::sqrt(s) + o.eps);
    };
  });
}

// The mean that ASGD keeps, as PyTorch: of the values from step t0 + 2 on.
TEST(Optimizers, AsgdKeepsTheMeanOfLateValues) {
  const ASGDOptions o{.lr = 0.25, .lambd = 0.5, .alpha = 0.5, .t0 = 1};
  Parameter p(Tensor::from_vector<double>({1}, {1}), "p");
  ASGD opt({p}, o);
  double value = 1, eta = o.lr, mean = 0;
  for (int t = 1; t <= 5; ++t) {
    opt.step({Tensor::from_vector<double>({gradient(t, 0)}, {1})});
    value = value * (1 - o.lambd * eta) - eta * gradient(t, 0);
    mean = t <= 3 ? value : mean + (value - mean) / (t - 2);
    eta = o.lr / std::pow(1 + o.lambd * o.lr * t, o.alpha);
    EXPECT_NEAR(p.value().item<double>(), value, 1e-14);
    EXPECT_NEAR(opt.state_dict().at("p.ax").item<double>(), mean, 1e-14);
  }
}

TEST(Optimizers, MaximizeIsTheNegativeGradient) {
  const auto after = [](const auto& options, double sign) {
    Parameter p(Tensor::from_vector<double>(kStart, {2, 3}), "p");
    OptimizerWith<std::decay_t<decltype(options)>> opt({p}, options);
    for (int t = 0; t < kSteps; ++t) opt.step({Tensor::from_vector<double>(gradients(t), {2, 3}) * sign});
    return p.value().to_vector<double>();
  };
  const auto expect = [&](auto options) {
    const Vector want = after(options, -1);
    options.maximize = true;
    EXPECT_EQ(after(options, 1), want);
  };
  expect(SGDOptions{.weight_decay = 0.5});
  expect(AdamWOptions{});
  expect(AdamOptions{.weight_decay = 0.5});
  expect(AdamaxOptions{});
  expect(NAdamOptions{});
  expect(RAdamOptions{});
  expect(RMSpropOptions{});
  expect(AdagradOptions{});
  expect(AdadeltaOptions{});
  expect(AdafactorOptions{});
  expect(ASGDOptions{});
  expect(RpropOptions{});
}

double rms(const Vector& x) {
  double s = 0;
  for (double v : x) s += v * v;
  return std::sqrt(s / static_cast<double>(x.size()));
}

// torch.optim.Adafactor for a matrix [2, 3], or a vector.
Vector adafactor(const AdafactorOptions& o, bool matrix) {
  Vector p = kStart, row(2), column(3), variance(6);
  for (int t = 1; t <= kSteps; ++t) {
    const Vector g = gradients(t - 1);
    const double share = std::pow(t, o.beta2_decay), rho = std::min(o.lr, 1 / std::sqrt(t));
    const double alpha = std::max(o.eps2, rms(p)) * rho;
    for (double& v : p) v *= 1 - o.lr * o.weight_decay;
    Vector squares(6), update(6);
    for (int i = 0; i < 6; ++i) squares[i] = g[i] * g[i];
    for (int r = 0; r < 2; ++r)
      row[r] += share * ((squares[3 * r] + squares[3 * r + 1] + squares[3 * r + 2]) / 3 - row[r]);
    for (int c = 0; c < 3; ++c) column[c] += share * ((squares[c] + squares[3 + c]) / 2 - column[c]);
    for (int i = 0; i < 6; ++i) {
      variance[i] += share * (squares[i] - variance[i]);
      const double estimate =
          matrix ? row[i / 3] * column[i % 3] / std::max((row[0] + row[1]) / 2, *o.eps1) : variance[i];
      update[i] = g[i] / std::sqrt(std::max(estimate, *o.eps1 * *o.eps1));
    }
    const double denominator = std::max(1.0, rms(update) / o.d);
    for (int i = 0; i < 6; ++i) p[i] -= alpha / denominator * update[i];
  }
  return p;
}

TEST(Optimizers, AdafactorEqualsItsFormula) {
  for (double lr : {0.05, 0.75}) {
    const AdafactorOptions o{.lr = lr, .beta2_decay = -0.75, .eps1 = 1e-6, .weight_decay = 0.125};
    expect_vector<Adafactor>(o, adafactor(o, true), {2, 3});
    expect_vector<Adafactor>(o, adafactor(o, false));
  }
}

TEST(Optimizers, AdafactorKeepsARowAndAColumn) {
  Parameter w(ones({4, 3, 5}), "w"), b(ones({5}), "b");
  const Adafactor opt({w, b});
  std::vector<std::string> got;
  for (const auto& [name, cell] : opt.named_cells()) got.push_back(str_cat(name, " ", cell.shape()));
  EXPECT_EQ(got, (std::vector<std::string>{"opt.lr []", "opt.steps []", "w.row_var [4, 3, 1]", "w.col_var [4, 1, 5]",
                                           "b.variance [5]"}));
}

template <class Opt>
void expect_resumes() {
  Parameter a(ones({2, 2}), "a"), b(ones({2, 2}), "a");
  Opt first({a}), second({b});
  const auto step = [](Opt& opt, int t) {
    opt.step({Tensor::from_vector<float>({0.5f, -1, 2.0f + static_cast<float>(t), 0.25f}, {2, 2})});
  };
  step(first, 0), step(first, 1);
  second.load_state_dict(first.state_dict());
  b.set(a.value());
  step(first, 2), step(second, 2);
  EXPECT_EQ(a.value().to_vector<float>(), b.value().to_vector<float>());
  EXPECT_NE(a.value().to_vector<float>()[0], 1);
}

TEST(Optimizers, ResumeExactly) {
  expect_resumes<Adam>();
  expect_resumes<Adamax>();
  expect_resumes<NAdam>();
  expect_resumes<RMSprop>();
  expect_resumes<Adagrad>();
  expect_resumes<Adafactor>();
  expect_resumes<RAdam>();
  expect_resumes<Adadelta>();
  expect_resumes<ASGD>();
  expect_resumes<Rprop>();
}

TEST(Optimizers, TakeParametersWithoutElements) {
  Parameter p(zeros({0, 3}), "p");
  for (const std::function<void()>& step :
       std::vector<std::function<void()>>{[&] {
                                            Adam({p}, {.amsgrad = true}).step({zeros({0, 3})});
                                          },
                                          [&] {
                                            NAdam({p}).step({zeros({0, 3})});
                                          },
                                          [&] {
                                            Adafactor({p}).step({zeros({0, 3})});
                                          },
                                          [&] {
                                            RMSprop({p}).step({zeros({0, 3})});
                                          }})
    step();
  EXPECT_EQ(p.value().shape(), Shape({0, 3}));
}

TEST(Optimizers, RefuseBadOptions) {
  const Parameter p(ones({2}), "p");
  EXPECT_EQ(error_of([&] { Adam({p}, {.betas = {1, 0.5}}); }), "Adam: betas are 1 and 0.5; need 0 <= beta < 1");
  EXPECT_EQ(error_of([&] { Adamax({p}, {.eps = 0}); }), "Adamax: eps is 0; need a number above 0");
  EXPECT_EQ(error_of([&] { NAdam({p}, {.momentum_decay = -1}); }), "NAdam: momentum_decay is -1; need a number >= 0");
  EXPECT_EQ(error_of([&] { RMSprop({p}, {.alpha = -1}); }), "RMSprop: alpha is -1; need a number >= 0");
  EXPECT_EQ(error_of([&] { Adagrad({p}, {.lr_decay = -1}); }), "Adagrad: lr_decay is -1; need a number >= 0");
  EXPECT_EQ(error_of([&] { Adafactor({p}, {.d = 0.5}); }), "Adafactor: d is 0.5; need a number >= 1");
  EXPECT_EQ(error_of([&] { Adadelta({p}, {.rho = 2}); }), "Adadelta: rho is 2; need a number from 0 to 1");
  EXPECT_EQ(error_of([&] {
              Rprop({p}, {.etas = {1.5, 2}});
            }),
            "Rprop: etas are 1.5 and 2; need 0 < first < 1 < second");
  EXPECT_EQ(error_of([&] {
              Rprop(decay_groups({p, Parameter(ones({2, 2}), "w")}, 0.1)).step({ones({2, 2}), ones({2})});
            }),
            "Rprop: weight_decay is 0.1; need 0: only signs count");
  EXPECT_EQ(error_of([&] { ASGD({p}, {.t0 = -1}); }), "ASGD: t0 is -1; need a number >= 0");
  EXPECT_EQ(error_of([&] { SGD({p}, {.momentum = 0.5, .dampening = 0.5, .nesterov = true}); }),
            "SGD: dampening is 0.5; need a finite number, 0 with nesterov");
  EXPECT_EQ(error_of([&] { Adafactor({p}, {.lr = -1}); }), "optimiser: lr is -1; need a finite number >= 0");
}

TEST(Clip, ByValue) {
  const Gradients clipped = clip_grad_value({Tensor::from_vector({3, -4, 0.5f}, {3}), Tensor()}, 1);
  EXPECT_EQ(clipped[0].to_vector<float>(), (std::vector<float>{1, -1, 0.5f}));
  EXPECT_FALSE(clipped[1].defined());
  EXPECT_EQ(error_of([] { clip_grad_value({ones({1})}, -1); }),
            "clip_grad_value: clip_value is -1; need a number >= 0");
}

}  // namespace
}  // namespace weft::optim
