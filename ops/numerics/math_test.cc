// Tests the scalar maths, one float at a time, against the C library in double, and Philox against the paper's known
// answers. The vector form is tested with the kernels, per instruction set.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/numerics/philox.h"

namespace weft {
namespace {

namespace text {
#define W_FN [[maybe_unused]] static inline
#include "ops/numerics/end_env.inc"
#include "ops/numerics/float_env.inc"
#include "ops/numerics/math.inc"
#undef W_FN
}  // namespace text

struct Function {
  const char* name;
  float (*f)(float);
  double (*truth)(double);
  double ulps;
};
const Function kFunctions[] = {
    {"exp", text::w_exp, std::exp, 1.5},
    {"exp2", text::w_exp2, std::exp2, 1.5},
    {"expm1", text::w_expm1, std::expm1, 2},
    {"log", text::w_log, std::log, 1},
    {"log2", text::w_log2, std::log2, 1.5},
    {"log1p", text::w_log1p, std::log1p, 1.5},
    {"sin", text::w_sin, std::sin, 2},
    {"cos", text::w_cos, std::cos, 2},
    {"tanh", text::w_tanh, std::tanh, 2},
    {"tanh_fast", text::w_tanh_fast, std::tanh, 6},
    {"erf", text::w_erf, std::erf, 2},
    {"sigmoid", text::w_sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 2.5},
    {"rsqrt", text::w_rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1.5},
    {"pow 0.5", [](float x) { return text::w_pow(x, 0.5f); }, [](double x) { return std::pow(x, 0.5); }, 1},
    {"pow -7.25", [](float x) { return text::w_pow(x, -7.25f); }, [](double x) { return std::pow(x, -7.25); }, 1},
    {"pow 3", [](float x) { return text::w_pow(x, 3); }, [](double x) { return std::pow(x, 3.0); }, 1},
    {"pow of 1.0625", [](float x) { return text::w_pow(1.0625f, x); }, [](double x) { return std::pow(1.0625, x); }, 1},
    {"pow of -2", [](float x) { return text::w_pow(-2.0f, x); }, [](double x) { return std::pow(-2.0, x); }, 1},
};

double error_in_ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (std::fabs(want) > std::numeric_limits<float>::max())
    return std::fabs(got) >= std::numeric_limits<float>::max() && std::signbit(got) == std::signbit(want) ? 0
                                                                                                          : INFINITY;
  const int e = want == 0 ? -126 : std::max(std::ilogb(want), -126);
  return std::fabs(got - want) / std::ldexp(1.0, e - 23);
}

TEST(Math, WithinTheStatedUlpsOverAllMagnitudes) {
  for (const Function& f : kFunctions) {
    double worst = 0;
    float where = 0;
    for (uint64_t u = 0; u <= 0x7f800000u; u += u < 1000 ? 1 : 9973)
      for (uint32_t sign : {0u, 0x80000000u}) {
        const float x = std::bit_cast<float>(static_cast<uint32_t>(u) | sign);
        const double e = error_in_ulps(f.f(x), f.truth(x));
        if (!(e <= worst)) worst = e, where = x;
      }
    for (float x : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()})
      EXPECT_EQ(error_in_ulps(f.f(x), f.truth(x)), 0) << f.name << " of " << x;
    EXPECT_LE(worst, f.ulps) << f.name << " of " << where;
  }
}

// A dense sample of the range of most values.
TEST(Math, WithinTheStatedUlpsFromMinusTwentyToTwenty) {
  for (const Function& f : kFunctions) {
    double worst = 0;
    float where = 0;
    for (int i = -200000; i <= 200000; ++i) {
      const float x = static_cast<float>(i) * 1.00013e-4f;
      const double e = error_in_ulps(f.f(x), f.truth(x));
      if (!(e <= worst)) worst = e, where = x;
    }
    EXPECT_LE(worst, f.ulps) << f.name << " of " << where;
  }
}

TEST(Math, OddFunctionsKeepTheSignOfZero) {
  for (auto f : {text::w_sin, text::w_tanh, text::w_tanh_fast, text::w_erf, text::w_expm1, text::w_log1p}) {
    EXPECT_TRUE(std::signbit(f(-0.0f)));
    EXPECT_FALSE(std::signbit(f(0.0f)));
  }
}

// Known answers of the Random123 distribution (Salmon et al., 2011).
TEST(Philox, KnownAnswers) {
  struct Known {
    uint32_t key[2], counter[4], words[4];
  };
  const Known known[] = {
      {{0, 0}, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u}, {~0u, ~0u, ~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0xa4093822, 0x299f31d0},
       {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Known& k : known) {
    uint32_t w[4];
    philox4x32(k.key[0] | uint64_t{k.key[1]} << 32, k.counter[0] | uint64_t{k.counter[1]} << 32, k.counter[2],
               k.counter[3], w);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(w[i], k.words[i]);
  }
}

}  // namespace
}  // namespace weft
