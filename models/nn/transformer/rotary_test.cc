#include "models/nn/transformer/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/testing/error_of.h"

namespace weft::nn {
namespace {

using weft::testing::error_of;

struct Row {
  const char* name;
  int64_t head_dim;
  RotaryOptions options;
  double scale;
  std::vector<double> radians;
};

// ROPE_INIT_FUNCTIONS of transformers 5.24, which computes in f32.
const Row kRows[] = {
    {"linear",
     16,
     {.factor = 4, .type = "linear"},
     1,
     {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}},
    {"llama3",
     16,
     {.factor = 8, .original_context = 64, .type = "llama3"},
     1,
     {1, 0.244384587, 0.0130422562, 0.00395284733, 0.00124999997, 0.000395284733, 0.000125000006, 3.95284733e-05}},
    {"yarn",
     16,
     {.factor = 4, .original_context = 64, .type = "yarn"},
     1.138629436111989,
     {1, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}},
    {"yarn with its own numbers",
     32,
     {.theta = 1e6,
      .factor = 4,
      .original_context = 32768,
      .type = "yarn",
      .beta_fast = 64,
      .beta_slow = 2,
      .attention_factor = 1.5},
     1.5,
     {1, 0.421696514, 0.177827939, 0.0749894157, 0.0316227786, 0.0133352149, 0.00477990136, 0.00165996165,
      0.000549999997, 0.000168678584, 4.44569851e-05, 1.87473561e-05, 7.90569356e-06, 3.33380353e-06, 1.40585337e-06,
      5.92843435e-07}},
};

TEST(Rotary, FrequenciesOfEachType) {
  for (const Row& row : kRows) {
    const RotaryFrequencies got = rotary_frequencies(row.head_dim, row.options);
    EXPECT_NEAR(got.scale, row.scale, 1e-12) << row.name;
    ASSERT_EQ(got.radians.size(), row.radians.size()) << row.name;
    // The reference rounds the exponent of theta to f32, and a few results after it.
    const double bound = (std::log(row.options.theta) + 8) * 0x1p-24;
    for (size_t i = 0; i < row.radians.size(); ++i)
      EXPECT_NEAR(got.radians[i] / row.radians[i], 1, bound) << row.name << " " << i;
  }
}

TEST(Rotary, FactorOneChangesNothing) {
  const std::vector<double> plain = rotary_frequencies(16, {.type = "default"}).radians;
  for (const char* type : {"linear", "llama3", "yarn"}) {
    EXPECT_EQ(rotary_frequencies(16, {.type = type}).radians, plain) << type;
    EXPECT_EQ(rotary_frequencies(16, {.type = type}).scale, 1) << type;
  }
}

TEST(Rotary, Refuses) {
  EXPECT_EQ(error_of([] { rotary_frequencies(7); }), "rotary_tables: head_dim is 7; need an even number");
  EXPECT_EQ(error_of([] { rotary_frequencies(8, {.type = "longrope"}); }),
            "rotary_tables: type is 'longrope'; need default, linear, llama3 or yarn");
  EXPECT_EQ(error_of([] { rotary_frequencies(8, {.theta = 1, .factor = 2, .type = "yarn"}); }),
            "rotary_tables: type yarn with theta 1 and factor 2 gives pair 0 no finite frequency; need other settings");
}

}  // namespace
}  // namespace weft::nn
