#include "models/optim/schedule.h"

#include <gtest/gtest.h>

#include "framework/testing/compare.h"
#include "models/optim/optimizers/sgd.h"
#include "models/optim/scheduler.h"
#include "ops/core/creation.h"

namespace weft::optim {
namespace {

using weft::testing::error_of;
using weft::testing::placed_error_of;

template <class S>
std::vector<double> first(const S& schedule, int64_t count) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(schedule.at(i));
  return out;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-14) << i;
}

TEST(Schedule, ByDefinition) {
  expect_near(first(StepLR{1, 2, 0.5}, 5), {1, 1, 0.5, 0.5, 0.25});
  expect_near(first(MultiStepLR{1, {1, 3, 3}, 0.5}, 5), {1, 0.5, 0.5, 0.125, 0.125});
  expect_near(first(ExponentialLR{2, 0.5}, 4), {2, 1, 0.5, 0.25});
  expect_near(first(ConstantLR{1, 0.25, 2}, 4), {0.25, 0.25, 1, 1});
  expect_near(first(LinearLR{1, 0.5, 1, 4}, 6), {0.5, 0.625, 0.75, 0.875, 1, 1});
  expect_near(first(PolynomialLR{1, 4, 2}, 6), {1, 0.5625, 0.25, 0.0625, 0, 0});
  expect_near(first(LambdaLR{2, [](int64_t n) { return 1.0 / static_cast<double>(1 + n); }}, 3), {2, 1, 2.0 / 3});
  expect_near(first(WarmupStableDecay{.base = 1, .warmup = 2, .total = 8, .decay = 4, .min_ratio = 0.5}, 10),
              {0.5, 1, 1, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.5});
  expect_near(first(WarmupStableDecay{.base = 1, .total = 4, .decay = 4, .shape = "sqrt"}, 5),
              {1, 0.5, 1 - std::sqrt(0.5), 1 - std::sqrt(0.75), 0});
}

// PyTorch computes the next value of CosineAnnealingLR from the last one.
TEST(Schedule, CosineAnnealingIsPyTorchsRecursion) {
  const double base = 0.75, eta_min = 0.125;
  const int64_t t_max = 6;
  std::vector<double> want{base};
  for (int64_t t = 1; t < 20; ++t) {
    const double lr = want.back();
    const auto at = [&](int64_t n) { return std::cos(std::numbers::pi * static_cast<double>(n) / t_max); };
    if ((t - 1 - t_max) % (2 * t_max) == 0)
      want.push_back(lr + (base - eta_min) * (1 - std::cos(std::numbers::pi / t_max)) / 2);
    else
      want.push_back((1 + at(t)) / (1 + at(t - 1)) * (lr - eta_min) + eta_min);
  }
  expect_near(first(CosineAnnealingLR{base, t_max, eta_min}, 20), want);
}

TEST(Schedule, WarmRestarts) {
  const CosineAnnealingWarmRestarts s{.base = 1, .t_0 = 2, .t_mult = 2, .eta_min = 0.5};
  expect_near(first(s, 7), {1, 0.75, 1, 0.75 + 0.25 * std::sqrt(0.5), 0.75, 0.75 - 0.25 * std::sqrt(0.5), 1});
  EXPECT_EQ((CosineAnnealingWarmRestarts{1, 3}.at(int64_t{3} << 40)), 1);
}

// PyTorch's phases, by hand: 10 steps, the first phase ends at 0.3 * 10 - 1 = 2, the second at 9.
TEST(Schedule, OneCycle) {
  const OneCycleLR s{
      .max_lr = 1, .total_steps = 10, .anneal_strategy = "linear", .div_factor = 4, .final_div_factor = 10};
  std::vector<double> want{0.25, 0.625, 1};
  for (int k = 1; k <= 7; ++k) want.push_back(1 + (0.025 - 1) * k / 7);
  expect_near(first(s, 10), want);
  const auto cosine = [](double a, double b, double x) {
    return b + (a - b) / 2 * (1 + std::cos(std::numbers::pi * x));
  };
  const OneCycleLR three{.max_lr = 1, .total_steps = 10, .div_factor = 4, .final_div_factor = 10, .three_phase = true};
  // Ends of phases: 2, 2 * 0.3 * 10 - 2 = 4, 9.
  expect_near(first(three, 10), {0.25, cosine(0.25, 1, 0.5), 1, cosine(1, 0.25, 0.5), 0.25, cosine(0.25, 0.025, 0.2),
                                 cosine(0.25, 0.025, 0.4), cosine(0.25, 0.025, 0.6), cosine(0.25, 0.025, 0.8), 0.025});
  EXPECT_EQ(s.at(10), s.at(9));  // after the last step
  EXPECT_EQ(error_of([&] { s.at(11); }), "OneCycleLR: got step 11; need 0 to 10: total_steps counts all steps");
  SGD opt({Parameter(ones({1}), "p")});
  Scheduler scheduler(opt, s);
  for (int i = 0; i < 10; ++i) scheduler.step();
  EXPECT_EQ(opt.lr.value().item<float>(), 0.025f);
  EXPECT_NE(placed_error_of([&] { scheduler.step(); }).find("schedule_test.cc"), std::string::npos);
}

TEST(Schedule, SequentialCountsFromEachMilestone) {
  const SequentialLR s{{[](int64_t n) { return 1.0 + static_cast<double>(n); }, StepLR{.base = 0.5, .step_size = 2}},
                       {3}};
  expect_near(first(s, 6), {1, 2, 3, 0.5, 0.5, 0.05});
  SGD opt({Parameter(ones({1}), "p")});
  Scheduler scheduler(opt, s);
  for (int i = 0; i < 3; ++i) scheduler.step();
  EXPECT_EQ(opt.lr.value().item<double>(), 0.5);
}

TEST(Schedule, RefusesBadNumbers) {
  EXPECT_EQ(error_of([] { CyclicLR{.mode = "square"}.at(1); }),
            "CyclicLR: mode is 'square'; need \"triangular\", \"triangular2\" or \"exp_range\"");
  EXPECT_EQ(error_of([] { CyclicLR{.step_size_up = 0}.at(1); }),
            "CyclicLR: step_size_up is 0 and step_size_down 0; need 1 or more, or 0 for a fall as long as the rise");
  EXPECT_EQ(error_of([] {
              SequentialLR{{StepLR{}}, {3}}.at(1);
            }),
            "SequentialLR: got 1 schedules and 1 milestones; need one schedule more than milestones");
  EXPECT_EQ(error_of([] { StepLR{1, 0}.at(1); }), "StepLR: step_size is 0; need 1 or more");
  EXPECT_EQ(error_of([] { CosineAnnealingLR{1, 0}.at(1); }), "CosineAnnealingLR: t_max is 0; need 1 or more");
  EXPECT_EQ(error_of([] { CosineWarmup{.warmup = 0, .total = 0}.at(-5); }), "warm-up: got step -5; need 0 or more");
  EXPECT_EQ(error_of([] { LambdaLR{}.at(1); }), "LambdaLR: got no function; need a function from step to factor");
  EXPECT_EQ(error_of([] { WarmupStableDecay{.warmup = 3, .total = 4, .decay = 2}.at(1); }),
            "WarmupStableDecay: warmup 3 and decay 2 are more than total 4 or negative; need warmup + decay <= total");
}

TEST(Scheduler, SetsTheLearningRate) {
  SGD opt({Parameter(ones({1}), "p")});
  Scheduler s(opt, StepLR{.base = 0.5, .step_size = 2, .gamma = 0.5});
  const auto lr = [&] { return opt.lr.value().item<float>(); };
  EXPECT_EQ(lr(), 0.5f);
  s.step();
  EXPECT_EQ(lr(), 0.5f);
  s.step();
  EXPECT_EQ(lr(), 0.25f);
  Scheduler other(opt, [](int64_t n) { return 1.0 / static_cast<double>(1 + n); });
  EXPECT_EQ(lr(), 1);
  other.load_state_dict({{"last_epoch", Tensor::from_vector<int64_t>({3}, {})}});
  EXPECT_EQ(lr(), 0.25f);
  EXPECT_EQ(other.state_dict().at("last_epoch").item<int64_t>(), 3);
  EXPECT_EQ(error_of([&] { other.load_state_dict({}); }),
            "load_state_dict: Scheduler: 'last_epoch' is missing or not one number");
  EXPECT_EQ(error_of([&] { capture([&](Tensor t) { return s.step(), t; }, ones({})); }),
            "Scheduler: called inside a compiled function, which would keep this one number; need a call between "
            "steps");
  EXPECT_EQ(error_of([&] { Scheduler(opt, [](int64_t) { return -1.0; }); }),
            "Scheduler: lr is -1; need a finite number >= 0");
  EXPECT_EQ(error_of([&] {
              other.load_state_dict({{"last_epoch", Tensor()}});
            }),
            "load_state_dict: Scheduler: 'last_epoch' is missing or not one number");
  EXPECT_EQ(error_of([&] {
              other.load_state_dict({{"last_epoch", full({}, 1.5)}});
            }),
            "load_state_dict: Scheduler: 'last_epoch' is f32; need an integer");
  EXPECT_EQ(s.last_epoch(), 2);
}

TEST(Scheduler, WithoutABaseChangesTheRateOfTheOptimizer) {
  const Parameter w(ones({2}), "w");
  const auto rates = [&](const LrFunction& f, int steps) {
    SGD opt({w}, 0.1);
    Scheduler s(opt, f);
    std::vector<double> all{s.lr()};
    for (int i = 0; i < steps; ++i) s.step(), all.push_back(opt.lr.value().item<double>());
    return all;
  };
  expect_near(rates(StepLR{.step_size = 2, .gamma = 0.5}, 3), {0.1, 0.1, 0.05, 0.05});
  expect_near(rates(CosineAnnealingLR{.t_max = 2}, 2), {0.1, 0.05, 0});
  expect_near(
      rates(SequentialLR{{ConstantLR{.factor = 0.5, .total_iters = 1}, ExponentialLR{.base = 2, .gamma = 0.5}}, {2}},
            4),
      {0.05, 0.1, 2, 1, 0.5});
  SGD opt({w}, 0.1), later({w}, 7);  // as after load(): the rate is the one of a later step
  Scheduler s(opt, ExponentialLR{.gamma = 0.5}), other(later, ExponentialLR{.gamma = 0.5});
  s.step();
  other.load_state_dict(s.state_dict());
  EXPECT_DOUBLE_EQ(later.lr.value().item<double>(), 0.05);
}

TEST(Scheduler, ReducesOnAPlateau) {
  SGD opt({Parameter(ones({1}), "p")}, {.lr = 1});
  ReduceLROnPlateau s(opt, {.factor = 0.5, .patience = 1, .threshold = 0.125, .cooldown = 1, .min_lr = 0.25});
  const auto after = [&](double metric) {
    s.step(metric);
    return opt.lr.value().item<float>();
  };
  EXPECT_EQ(after(8), 1);       // best 8
  EXPECT_EQ(after(7.5), 1);     // not better by an eighth: 1 bad step
  EXPECT_EQ(after(7.25), 0.5);  // 2 bad: reduced, cooldown 1
  EXPECT_EQ(after(9), 0.5);     // cools down
  EXPECT_EQ(after(6), 0.5);     // best 6
  EXPECT_EQ(after(std::nan("")), 0.5);
  const auto state = s.state_dict();
  EXPECT_EQ(after(6), 0.25);
  EXPECT_EQ(after(6), 0.25);
  EXPECT_EQ(after(6), 0.25);
  s.load_state_dict(state);
  EXPECT_EQ(opt.lr.value().item<float>(), 0.5f);
  EXPECT_EQ(s.best(), 6);
  EXPECT_EQ(after(6), 0.25);
  ReduceLROnPlateau most(opt, {.mode = "max", .patience = 0, .threshold = 0.5, .threshold_mode = "abs"});
  most.step(1);
  most.step(1.75);
  EXPECT_EQ(most.best(), 1.75);
  most.step(2);
  EXPECT_NEAR(opt.lr.value().item<double>(), 0.025, 1e-9);
  opt.set_lr(8);
  most.step(2);
  EXPECT_NEAR(opt.lr.value().item<double>(), 0.8, 1e-7);
  // A rate is f64: no digits are lost on the way through the cell.
  ReduceLROnPlateau half(opt, {.mode = "max", .factor = 0.5, .patience = 0});
  opt.set_lr(0.3);
  half.step(2);
  half.step(2);
  EXPECT_EQ(opt.lr.value().item<double>(), 0.15);
  EXPECT_EQ(half.lr(), 0.15);
  EXPECT_EQ(error_of([&] { ReduceLROnPlateau(opt, {.mode = "least"}); }),
            "ReduceLROnPlateau: mode is 'least'; need \"min\" or \"max\"");
  EXPECT_EQ(error_of([&] { ReduceLROnPlateau(opt, {.factor = 1}); }),
            "ReduceLROnPlateau: factor is 1; need a number below 1");
}

}  // namespace
}  // namespace weft::optim
