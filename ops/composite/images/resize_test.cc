#include "ops/composite/images/resize.h"

#include <cmath>

#include "framework/testing/compare.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;

// One line, resized by the definition: place(i) is the position of result i.
Reals resized(const Reals& x, int64_t in, int64_t out, bool linear, const std::function<Real(int64_t)>& place) {
  Reals y;
  for (size_t line = 0; line < x.size() / in; ++line)
    for (int64_t i = 0; i < out; ++i) {
      const Real p = place(i);
      const int64_t low = std::min<int64_t>(static_cast<int64_t>(std::floor(p)), in - 1),
                    high = std::min(low + 1, in - 1);
      const Real w = linear ? p - static_cast<Real>(low) : 0;
      y.push_back(x[line * in + low] * (1 - w) + x[line * in + high] * w);
    }
  return y;
}

const Operand kLines{Shape{2, 3, 5}};

const std::vector<CompositeRow> kTable = {
    {"nearest",
     {kLines},
     [](Args a) { return interpolate(a[0], {.size = {8}}); },
     [](const std::vector<Reals>& in) {
       return resized(in[0], 5, 8, false, [](int64_t i) { return Real(i) * 5 / 8; });
     }},
    {"nearest_exact",
     {kLines},
     [](Args a) { return interpolate(a[0], {.size = {3}, .mode = "nearest-exact"}); },
     [](const std::vector<Reals>& in) {
       return resized(in[0], 5, 3, false, [](int64_t i) { return (Real(i) + Real(0.5)) * 5 / 3; });
     }},
    {"linear",
     {kLines},
     [](Args a) { return interpolate(a[0], {.size = {8}, .mode = "linear"}); },
     [](const std::vector<Reals>& in) {
       return resized(in[0], 5, 8, true,
                      [](int64_t i) { return std::max(Real(0), (Real(i) + Real(0.5)) * 5 / 8 - Real(0.5)); });
     },
     32},
    {"linear_corners",
     {kLines},
     [](Args a) { return interpolate(a[0], {.size = {9}, .mode = "linear", .align_corners = true}); },
     [](const std::vector<Reals>& in) { return resized(in[0], 5, 9, true, [](int64_t i) { return Real(i) / 2; }); },
     32},
    {"factor",
     {kLines},
     [](Args a) { return interpolate(a[0], {.scale_factor = {1.5}, .mode = "linear"}); },
     [](const std::vector<Reals>& in) {
       return resized(in[0], 5, 7, true,
                      [](int64_t i) { return std::max(Real(0), (Real(i) + Real(0.5)) / Real(1.5) - Real(0.5)); });
     },
     32},
};

WEFT_TEST_COMPOSITES(Resize, kTable);

TEST(ResizeFunctions, TwoDimsAreOneAfterTheOther) {
  const Tensor x = Tensor::from_vector({1, 2, 3, 4}, {1, 1, 2, 2});
  EXPECT_EQ(interpolate(x, 2).to_vector<float>(), (std::vector<float>{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}));
  const Tensor y = interpolate(x, {.size = {3}, .mode = "bilinear", .align_corners = true});
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1, 1.5, 2, 2, 2.5, 3, 3, 3.5, 4}));
  EXPECT_EQ(interpolate(x, {.size = {1}, .mode = "area"}).item<float>(), 2.5f);
  const Tensor flat = full({1, 1, 40, 3}, 0.75);  // the weights of each position sum to 1
  for (const char* mode : {"bilinear", "bicubic"})
    for (float v : interpolate(flat, {.size = {7, 5}, .mode = mode, .antialias = true}).to_vector<float>())
      EXPECT_NEAR(v, 0.75, 40 * 0x1p-24);
}

TEST(ResizeFunctions, ErrorsSayWhatIsNeeded) {
  const Tensor x = Tensor::from_vector({1, 2, 3, 4}, {1, 1, 2, 2});
  EXPECT_EQ(error_of([&] { interpolate(x, InterpolateOptions{}); }),
            "interpolate: got neither size nor scale_factor; need one of them");
  EXPECT_EQ(error_of([&] { interpolate(x, {}); }),
            "interpolate: scale_factor is 0, or neither it nor size is given; need one of them, above 0");
  for (const char* mode : {"nearest", "bilinear", "area"}) {
    EXPECT_EQ(error_of([&] { interpolate(x, {.size = {INT64_MAX}, .mode = mode}); }),
              "interpolate: shape [1, 1, 9223372036854775807, 9223372036854775807] has too many elements; need fewer "
              "than 2^58");
    EXPECT_EQ(error_of([&] { interpolate(x, {.scale_factor = {1e10}, .mode = mode}); }),
              "interpolate: shape [1, 1, 20000000000, 20000000000] has too many elements; need fewer than 2^58");
  }
  EXPECT_EQ(error_of([&] { interpolate(x, {.size = {3}, .mode = "linear"}); }),
            "interpolate: mode is 'linear' for 2 spatial dims; need \"nearest\", \"nearest-exact\", \"area\", "
            "\"bicubic\" or \"bilinear\"");
  EXPECT_EQ(error_of([&] { interpolate(x, {.size = {3}, .antialias = true}); }),
            "interpolate: antialias with mode 'nearest'; need \"bilinear\" or \"bicubic\"");
  EXPECT_EQ(error_of([&] { interpolate(x, 0.1); }),
            "interpolate: the result has 0 positions in spatial dim 0; need 1 or more");
  EXPECT_EQ(error_of([&] {
              interpolate(x, {.size = {1, 2, 3}});
            }),
            "interpolate: got 3 numbers for 2 spatial dims; need one, or one for each");
}

}  // namespace
}  // namespace weft::testing
