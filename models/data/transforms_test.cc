#include "models/data/transforms.h"

#include <gtest/gtest.h>

#include <set>

#include "framework/base/testing/error_of.h"
#include "ops/core/core.h"

namespace weft::data::transforms {
namespace {

using testing::expect_error;

// [1, rows, columns] with the numbers 0, 1, 2...
Tensor image(int64_t rows, int64_t columns) { return arange(rows * columns).to(kUInt8).view({1, rows, columns}); }
std::vector<int64_t> values(const Tensor& t) { return t.to(kInt64).to_vector<int64_t>(); }
using Values = std::vector<int64_t>;

TEST(Transforms, MoveThePixels) {
  EXPECT_EQ(values(crop(image(3, 4), 1, 2, 2, 2)), (Values{6, 7, 10, 11}));
  EXPECT_EQ(values(center_crop(image(3, 4), {1, 2})), (Values{5, 6}));
  EXPECT_EQ(values(hflip(image(2, 3))), (Values{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(values(vflip(image(2, 3))), (Values{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(values(resize(image(2, 4), {1, 2}, "area")), (Values{2, 4}));  // 2.5 and 4.5, rounded to even
  EXPECT_EQ(resize(image(4, 6), 2).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(resize(image(6, 4), 2).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(resize(image(2, 4), {1, 2}).dtype(), kUInt8);
  const Tensor x = stack({full({1, 2}, 3.0), full({1, 2}, 8.0)});
  EXPECT_EQ(normalize(x, {1, 2}, {2, 3}).to_vector<float>(), (std::vector<float>{1, 1, 2, 2}));
}

TEST(Transforms, RandomOnesAreFunctionsOfTheSeed) {
  std::set<Values> seen;
  int flips = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Values at = values(random_crop(image(3, 3), 2, seed));
    EXPECT_EQ(at, values(random_crop(image(3, 3), 2, seed)));
    EXPECT_EQ(at[3], at[0] + 4);
    seen.insert(at);
    flips += values(random_horizontal_flip(image(1, 2), seed))[0] == 1;
  }
  EXPECT_EQ(seen.size(), 4u);   // each place is missed with probability 0.75^200
  EXPECT_NEAR(flips, 100, 36);  // five standard deviations
  EXPECT_EQ(random_crop(image(2, 2), 4, 1, /*padding=*/1).shape(), (Shape{1, 4, 4}));
}

TEST(Transforms, RefuseWhatDoesNotFit) {
  expect_error(
      [] { crop(image(3, 4), 2, 0, 2, 2); },
      "crop: the part of 2 x 2 at row 2 and column 0 is not inside of the image u8[1, 3, 4]; need a part of its "
      "3 x 4 positions");
  expect_error([] { normalize(image(2, 2), {1}, {1}); }, "normalize: image is u8[1, 2, 2]; need floats");
  expect_error(
      [] {
        normalize(ones({3, 2, 2}), {1}, {1});
      },
      "normalize: got 1 means and 1 deviations for 3 channels; need one of each for a channel");
  expect_error([] { resize(ones({2, 2}), 2); }, "resize: image is f32[2, 2]; need [..., channels, height, width]");
  expect_error([] { resize(image(2, 2), {1, 2, 3}); }, "resize: size is [1, 2, 3]; need one positive number or two");
  expect_error([] { random_horizontal_flip(image(2, 2), 1, 2); },
               "random_horizontal_flip: p is 2; need a probability from 0 to 1");
}

}  // namespace
}  // namespace weft::data::transforms
