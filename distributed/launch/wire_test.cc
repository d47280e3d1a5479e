// Tests gradients sent as bf16: the places of rounding, the distance from the exact sum, and the plan's bytes.
#include <gtest/gtest.h>

#include <cmath>

#include "distributed/launch/compile.h"
#include "framework/base/testing/error_of.h"
#include "weft.h"

namespace weft::dist {
namespace {

// A step from zero with learning rate 1 sets the parameter to minus its gradient. Rank r of four adds the product of
// row r of x and row r of y to the gradient.
constexpr int64_t kRanks = 4, kWidth = 64;

struct Trained {
  std::vector<float> gradient;
  PlanReport plan;
};

Trained run(const Tensor& x, const Tensor& y, int zero, const std::string& wire) {
  Parameter w(zeros({kWidth, kWidth}), "w");
  Plan plan;
  plan.zero = zero;
  plan.wire = wire;
  auto step = compile(
      [&](Tensor x, Tensor y) {
        const Tensor loss = sum(square(matmul(x, w) + y)) * 0.5;
        w.set(w.value() - grad(loss, std::vector<Parameter>{w})[0]);
        return loss;
      },
      {.mesh = Mesh::parse("dp4"), .plan = plan});
  step(x, y);
  return {(-w.value()).to_vector<float>(), step.plan()};
}

TEST(Wire, RoundsWhatARankGivesAndTheSum) {
  manual_seed(3);
  const Tensor x = randn({kRanks, kWidth}), y = randn({kRanks, kWidth});
  const std::vector<float> xs = x.to_vector<float>(), ys = y.to_vector<float>();
  const int64_t n = kWidth * kWidth;
  for (const int zero : {0, 1}) {
    const Trained narrow = run(x, y, zero, "bf16"), wide = run(x, y, zero, "f32");
    int64_t rounded = 0;
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0, given = 0;
      double exact = 0, size = 0;
      for (int64_t r = 0; r < kRanks; ++r) {
        const float g = xs[r * kWidth + i / kWidth] * ys[r * kWidth + i % kWidth];
        sum += g;
        given += static_cast<float>(bfloat16(g));
        exact += g;
        size += std::fabs(g);
      }
      EXPECT_EQ(wide.gradient[i], sum);
      ASSERT_EQ(narrow.gradient[i], static_cast<float>(bfloat16(given))) << "zero " << zero;
      // Rounding to bf16 changes a value by at most 2^-8 of it: all ranks' terms by 2^-8 of `size` in total, and the
      // sum, which is at most `size`, by as much again. An f32 sum adds 2^-24 of `size` for each rank.
      const double bound = (std::ldexp(2.0, -8) + std::ldexp(1.0, -16) + std::ldexp(4.0, -24)) * size;
      ASSERT_LE(std::fabs(narrow.gradient[i] - exact), bound);
      rounded += narrow.gradient[i] != sum;
    }
    EXPECT_GT(rounded, n / 2);
  }
}

TEST(Wire, ThePlanShowsTheTypeAndItsBytes) {
  const Tensor x = zeros({kRanks, kWidth});
  for (const int zero : {0, 1})
    for (const char* const wire : {"f32", "bf16"}) {
      const PlanReport plan = run(x, x, zero, wire).plan;
      int64_t narrow = 0;
      for (const PlannedCollective& c : plan.collectives()) {
        if (c.dtype != kBFloat16) continue;
        EXPECT_EQ(c.subject, Subject::kGradient);
        EXPECT_EQ(c.what, "w");
        narrow += c.bytes;
      }
      EXPECT_EQ(narrow, wire == std::string("bf16") ? kWidth * kWidth * 2 : 0);
    }
}

TEST(Wire, ErrorsSayWhatIsNeeded) {
  Plan plan;
  plan.wire = "f16";
  const auto error = [&](bool verify) {
    return weft::testing::placed_error_of([&] {
      compile([](Tensor x) { return sum(x); },
              {.mesh = Mesh::parse("dp2"), .plan = plan, .verify_numerics = verify})(zeros({2}));
    });
  };
  EXPECT_NE(error(false).find("plan: wire is 'f16'; need f32 or bf16"), std::string::npos) << error(false);
  plan.wire = "bf16";
  EXPECT_NE(error(true).find("plan: wire bf16 with verify_numerics"), std::string::npos) << error(true);
}

}  // namespace
}  // namespace weft::dist
