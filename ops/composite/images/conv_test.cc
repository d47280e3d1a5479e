#include "ops/composite/images/conv.h"

#include "framework/autodiff/grad.h"
#include "framework/testing/compare.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;

// The definition: for input [N, C, H, W], weight [O, C / groups, kh, kw] and padding lo before.
struct Geometry {
  int64_t n, c, h, w, o, kh, kw;
  int64_t stride[2] = {1, 1}, lo[2] = {0, 0}, dilation[2] = {1, 1}, groups = 1, out[2];
};
Reals convolved(const Geometry& g, const Reals& x, const Reals& weight, const Reals* bias) {
  Reals y;
  const int64_t each = g.c / g.groups;
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t o = 0; o < g.o; ++o)
      for (int64_t i = 0; i < g.out[0]; ++i)
        for (int64_t j = 0; j < g.out[1]; ++j) {
          Real s = bias ? (*bias)[o] : 0;
          for (int64_t c = 0; c < each; ++c)
            for (int64_t a = 0; a < g.kh; ++a)
              for (int64_t b = 0; b < g.kw; ++b) {
                const int64_t r = i * g.stride[0] + a * g.dilation[0] - g.lo[0];
                const int64_t q = j * g.stride[1] + b * g.dilation[1] - g.lo[1];
                if (r < 0 || r >= g.h || q < 0 || q >= g.w) continue;
                const int64_t channel = o / (g.o / g.groups) * each + c;
                s += x[((n * g.c + channel) * g.h + r) * g.w + q] * weight[((o * each + c) * g.kh + a) * g.kw + b];
              }
          y.push_back(s);
        }
  return y;
}

// The transposed convolution scatters: each element of x adds the kernel to the result. weight: [C, O / groups, kh,
// kw].
Reals scattered(const Geometry& g, const Reals& x, const Reals& weight) {
  Reals y(g.n * g.o * g.out[0] * g.out[1]);
  const int64_t each = g.o / g.groups;
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t c = 0; c < g.c; ++c)
      for (int64_t i = 0; i < g.h; ++i)
        for (int64_t j = 0; j < g.w; ++j)
          for (int64_t o = 0; o < each; ++o)
            for (int64_t a = 0; a < g.kh; ++a)
              for (int64_t b = 0; b < g.kw; ++b) {
                const int64_t r = i * g.stride[0] + a * g.dilation[0] - g.lo[0];
                const int64_t q = j * g.stride[1] + b * g.dilation[1] - g.lo[1];
                if (r < 0 || r >= g.out[0] || q < 0 || q >= g.out[1]) continue;
                const int64_t channel = c / (g.c / g.groups) * each + o;
                y[((n * g.o + channel) * g.out[0] + r) * g.out[1] + q] +=
                    x[((n * g.c + c) * g.h + i) * g.w + j] * weight[((c * each + o) * g.kh + a) * g.kw + b];
              }
  return y;
}

// Roundings to the operands' dtype between the product and the result: of the product, before the bias is added.
constexpr int kStored = 2;

const std::vector<CompositeRow> kTable = {
    {"conv1d",
     {{Shape{2, 3, 9}}, {Shape{4, 3, 3}}, {Shape{4}}},
     [](Args a) { return conv1d(a[0], a[1], a[2], 2, 1); },
     [](const std::vector<Reals>& in) {
       Geometry g{2, 3, 1, 9, 4, 1, 3};
       g.stride[1] = 2, g.lo[1] = 1, g.out[0] = 1, g.out[1] = 5;
       return convolved(g, in[0], in[1], &in[2]);
     },
     32,
     true,
     false,
     0,
     kStored},
    {"conv2d",
     {{Shape{2, 3, 6, 5}}, {Shape{4, 3, 3, 2}}, {Shape{4}}},
     [](Args a) {
       return conv2d(a[0], a[1], a[2], {1, 2}, {1, 0}, {2, 1});
     },
     [](const std::vector<Reals>& in) {
       Geometry g{2, 3, 6, 5, 4, 3, 2};
       g.stride[1] = 2, g.lo[0] = 1, g.dilation[0] = 2, g.out[0] = 4, g.out[1] = 2;
       return convolved(g, in[0], in[1], &in[2]);
     },
     48,
     true,
     false,
     0,
     kStored},
    {"conv2d_same",
     {{Shape{1, 2, 5, 4}}, {Shape{3, 2, 3, 4}}},
     [](Args a) { return conv2d(a[0], a[1], Tensor(), 1, "same"); },
     [](const std::vector<Reals>& in) {
       Geometry g{1, 2, 5, 4, 3, 3, 4};
       g.lo[0] = 1, g.lo[1] = 1, g.out[0] = 5, g.out[1] = 4;
       return convolved(g, in[0], in[1], nullptr);
     },
     48},
    {"conv2d_groups",
     {{Shape{2, 4, 4, 5}}, {Shape{6, 2, 2, 3}}, {Shape{6}}},
     [](Args a) { return conv2d(a[0], a[1], a[2], 1, 0, 1, 2); },
     [](const std::vector<Reals>& in) {
       Geometry g{2, 4, 4, 5, 6, 2, 3};
       g.groups = 2, g.out[0] = 3, g.out[1] = 3;
       return convolved(g, in[0], in[1], &in[2]);
     },
     32,
     true,
     false,
     0,
     kStored},
    {"conv2d_depthwise",
     {{Shape{2, 4, 5, 5}}, {Shape{4, 1, 3, 3}}},
     [](Args a) { return conv2d(a[0], a[1], Tensor(), 1, 1, 1, 4); },
     [](const std::vector<Reals>& in) {
       Geometry g{2, 4, 5, 5, 4, 3, 3};
       g.groups = 4, g.lo[0] = g.lo[1] = 1, g.out[0] = g.out[1] = 5;
       return convolved(g, in[0], in[1], nullptr);
     },
     32},
    {"conv2d_unbatched",
     {{Shape{3, 4, 4}}, {Shape{2, 3, 4, 4}}},
     [](Args a) { return conv2d(a[0], a[1]); },
     [](const std::vector<Reals>& in) {
       Geometry g{1, 3, 4, 4, 2, 4, 4};
       g.out[0] = g.out[1] = 1;
       return convolved(g, in[0], in[1], nullptr);
     },
     64},
    {"conv_transpose2d",
     {{Shape{2, 3, 4, 3}}, {Shape{3, 2, 3, 2}}, {Shape{2}}},
     [](Args a) {
       return conv_transpose2d(a[0], a[1], a[2], {2, 1}, {1, 0}, {1, 0}, 1, {1, 2});
     },
     [](const std::vector<Reals>& in) {
       Geometry g{2, 3, 4, 3, 2, 3, 2};
       g.stride[0] = 2, g.lo[0] = 1, g.dilation[1] = 2, g.out[0] = 8, g.out[1] = 5;
       Reals y = scattered(g, in[0], in[1]);
       for (size_t i = 0; i < y.size(); ++i) y[i] += in[2][i / 40 % 2];
       return y;
     },
     32,
     true,
     false,
     0,
     kStored},
    // A phase without elements of the kernel; a kernel that is smaller than the stride, with padding.
    {"conv_transpose2d_strides",
     {{Shape{2, 3, 4, 3}}, {Shape{3, 2, 1, 3}}},
     [](Args a) { return conv_transpose2d(a[0], a[1], Tensor(), 2); },
     [](const std::vector<Reals>& in) {
       Geometry g{2, 3, 4, 3, 2, 1, 3};
       g.stride[0] = g.stride[1] = 2, g.out[0] = g.out[1] = 7;
       return scattered(g, in[0], in[1]);
     },
     32},
    {"conv_transpose1d_depthwise",
     {{Shape{2, 4, 5}}, {Shape{4, 1, 2}}},
     [](Args a) { return conv_transpose1d(a[0], a[1], Tensor(), 3, 1, 0, 4); },
     [](const std::vector<Reals>& in) {
       Geometry g{2, 4, 1, 5, 4, 1, 2};
       g.stride[1] = 3, g.lo[1] = 1, g.groups = 4, g.out[0] = 1, g.out[1] = 12;
       return scattered(g, in[0], in[1]);
     },
     32},
    {"conv_transpose1d_groups",
     {{Shape{2, 4, 5}}, {Shape{4, 3, 3}}},
     [](Args a) { return conv_transpose1d(a[0], a[1], Tensor(), 3, 0, 2, 2); },
     [](const std::vector<Reals>& in) {
       Geometry g{2, 4, 1, 5, 6, 1, 3};
       g.stride[1] = 3, g.groups = 2, g.out[0] = 1, g.out[1] = 17;
       return scattered(g, in[0], in[1]);
     },
     32},
};

WEFT_TEST_COMPOSITES(Conv, kTable);

// A convolution in three dims is the sum of the convolutions with the kernel's planes.
TEST(ConvFunctions, ThreeDims) {
  Random random(3);
  const Tensor x = random_tensor(kFloat64, {2, 2, 4, 5, 6}, random),
               w = random_tensor(kFloat64, {3, 2, 2, 3, 3}, random);
  Tensor want;
  for (int64_t k = 0; k < 2; ++k) {
    std::vector<Tensor> planes;
    for (int64_t d = 0; d < 3; ++d) planes.push_back(conv2d(select(x, 2, d + k), select(w, 2, k), Tensor(), 1, 1));
    const Tensor part = stack(planes, 2);
    want = want.defined() ? want + part : part;
  }
  EXPECT_TRUE(close(conv3d(x, w, Tensor(), 1, {0, 1, 1}), want, kFloat64, 64));
  const Tensor grouped = random_tensor(kFloat64, {4, 1, 2, 3, 3}, random);
  const Tensor parts[] = {conv3d(slice(x, 1, 0, 1), slice(grouped, 0, 0, 2)),
                          conv3d(slice(x, 1, 1, 2), slice(grouped, 0, 2, 4))};
  EXPECT_TRUE(close(conv3d(x, grouped, Tensor(), 1, 0, 1, 2), cat({parts[0], parts[1]}, 1), kFloat64, 64));
}

TEST(ConvFunctions, ErrorsSayWhatIsNeeded) {
  const Tensor x = ones({2, 3, 8, 8}), w = ones({4, 3, 3, 3});
  const auto error = [](auto fn) { return error_of([&] { fn(); }); };
  EXPECT_EQ(error([&] {
              conv2d(x, ones({4, 2, 3, 3}));
            }),
            "conv2d: input [2, 3, 8, 8] has 3 channels; weight [4, 2, 3, 3] needs 2");
  EXPECT_EQ(error([&] {
              conv2d(x, ones({4, 3, 3}));
            }),
            "conv2d: weight is f32[4, 3, 3]; need [out channels, C / groups, 2 kernel dims]");
  EXPECT_EQ(error([&] { conv1d(x, w); }),
            "conv1d: input is f32[2, 3, 8, 8]; need [N, C, 1 spatial dim] or [C, 1 spatial dim]");
  EXPECT_EQ(error([&] { conv2d(x, w, ones({3})); }), "conv2d: bias is f32[3]; need [4], one per out channel");
  EXPECT_EQ(error([&] { conv2d(x, w, Tensor(), {1, 1, 1}); }), "conv2d: stride is [1, 1, 1]; need one number or 2");
  EXPECT_EQ(error([&] { conv2d(x, w, Tensor(), 0); }), "conv2d: stride is [0, 0]; need 1 or more");
  EXPECT_EQ(error([&] { conv2d(x, w, Tensor(), 2, "same"); }),
            "conv2d: padding \"same\" with stride [2, 2]; need a stride of 1");
  EXPECT_EQ(error([&] { conv2d(x, w, Tensor(), 1, "full"); }),
            "conv2d: padding is 'full'; need numbers, \"valid\" or \"same\"");
  EXPECT_EQ(
      error([&] { conv2d(x, w, Tensor(), 1, 0, 4); }),
      "conv: a kernel of 9 elements does not fit into spatial dim 0 of input [2, 3, 8, 8], 8 with padding; need a "
      "smaller kernel or more padding");
  EXPECT_EQ(
      error([&] {
        conv_transpose2d(x, ones({3, 2, 3, 3}), Tensor(), 2, 0, 2);
      }),
      "conv_transpose2d: output_padding is [2, 2]; need 0 or more, and less than stride [2, 2] or dilation [1, 1]");
}

}  // namespace
}  // namespace weft::testing
