// Values and gradients are rows of models/testing/pytorch/everyday.txt.
#include "ops/composite/images/sample.h"

#include <cmath>

#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

TEST(Sample, ShufflesAreInverse) {
  const Tensor x = reshape(arange(2 * 12 * 2 * 3), {2, 12, 2, 3}), y = pixel_shuffle(x, 2);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 4, 6}));
  EXPECT_EQ(y(0, 0, 1, 0).item<int64_t>(), 12);  // the third of the four channels of the block
  EXPECT_EQ(pixel_unshuffle(y, 2).to_vector<int64_t>(), x.to_vector<int64_t>());
  EXPECT_EQ(pixel_shuffle(x[0], 2).shape(), (Shape{3, 4, 6}));
}

TEST(Sample, TheIdentityKeepsImagesOf16BitsToo) {
  const Tensor theta = reshape(eye(2, 3), {1, 2, 3});
  for (DType t : {kFloat32, kBFloat16})
    for (bool corners : {false, true}) {
      const Tensor x = reshape(arange(12), {1, 1, 3, 4}).to(t);
      const Tensor grid = affine_grid(theta, {1, 1, 3, 4}, corners);
      const Tensor y = grid_sample(x, grid, {.mode = "nearest", .align_corners = corners});
      EXPECT_EQ(y.dtype(), t);
      EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
    }
  const Tensor nowhere = full({1, 1, 1, 2}, NAN);
  EXPECT_EQ(grid_sample(ones({1, 1, 2, 2}), nowhere).item<float>(), 0);
}

TEST(Sample, ErrorsSayWhatIsNeeded) {
  const Tensor x = ones({1, 2, 4, 4}), grid = zeros({1, 3, 3, 2});
  EXPECT_EQ(error_of([&] { pixel_shuffle(x, 2); }), "pixel_shuffle: x is f32[1, 2, 4, 4]; need [..., C * 4, H, W]");
  EXPECT_EQ(error_of([&] { pixel_unshuffle(x, 3); }),
            "pixel_unshuffle: x is f32[1, 2, 4, 4]; need [..., C, H * 3, W * 3]");
  EXPECT_EQ(
      error_of([&] {
        affine_grid(ones({1, 2, 2}), {1, 1, 2, 2});
      }),
      "affine_grid: theta is f32[1, 2, 2] for size [1, 1, 2, 2]; need [N, 2, 3] for [N, C, H, W], or [N, 3, 4] for "
      "[N, C, D, H, W]");
  EXPECT_EQ(error_of([&] {
              grid_sample(x, zeros({2, 3, 3, 2}));
            }),
            "grid_sample: x is f32[1, 2, 4, 4] and grid f32[2, 3, 3, 2]; need [N, C, H, W] and [N, H, W, 2], or [N, C, "
            "D, H, W] and [N, D, H, W, 3]");
  EXPECT_EQ(error_of([&] { grid_sample(x, grid, "bicubic"); }),
            "grid_sample: mode is 'bicubic'; need \"bilinear\" or \"nearest\"");
  EXPECT_EQ(error_of([&] { grid_sample(x, grid, "nearest", "mirror"); }),
            "grid_sample: padding_mode is 'mirror'; need \"zeros\", \"border\" or \"reflection\"");
}

}  // namespace
}  // namespace weft::testing
