#include "models/nn/layers/channel_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/capture.h"
#include "framework/testing/compare.h"
#include "framework/testing/gradcheck.h"
#include "framework/testing/values.h"
#include "models/nn/container.h"
#include "models/nn/layers/conv.h"
#include "models/nn/layers/pool.h"
#include "ops/composite/layers/norm.h"
#include "ops/core/core.h"

namespace weft::nn {
namespace {

using weft::testing::error_of;
using weft::testing::Random;
using weft::testing::random_tensor;

// x [N, C, T], normalised over the elements with equal group(n, c), by the definition in double.
std::vector<double> normalised(const Tensor& x, const std::function<int64_t(int64_t n, int64_t c)>& group) {
  const std::vector<double> v = x.to_vector<double>();
  const int64_t channels = x.size(1), time = x.size(2);
  const auto group_of = [&](size_t i) { return group(i / (channels * time), i / time % channels); };
  std::vector<double> y;
  for (size_t i = 0; i < v.size(); ++i) {
    double sum = 0, squares = 0, count = 0;
    for (size_t j = 0; j < v.size(); ++j)
      if (group_of(j) == group_of(i)) sum += v[j], ++count;
    for (size_t j = 0; j < v.size(); ++j)
      if (group_of(j) == group_of(i)) squares += (v[j] - sum / count) * (v[j] - sum / count);
    y.push_back((v[i] - sum / count) / std::sqrt(squares / count + 1e-5));
  }
  return y;
}

void expect_near(const Tensor& got, const std::vector<double>& want) {
  const std::vector<double> v = got.detach().to_vector<double>();
  ASSERT_EQ(v.size(), want.size());
  for (size_t i = 0; i < v.size(); ++i) EXPECT_NEAR(v[i], want[i], 1e-11) << i;
}

TEST(ChannelNorm, AreTheDefinitions) {
  Random random(3);
  const Tensor x = random_tensor(kFloat64, {3, 4, 5}, random);
  expect_near(batch_norm(x), normalised(x, [](int64_t, int64_t c) { return c; }));
  expect_near(group_norm(x, 2), normalised(x, [](int64_t n, int64_t c) { return n * 2 + c / 2; }));
  expect_near(instance_norm(x), normalised(x, [](int64_t n, int64_t c) { return n * 4 + c; }));
  expect_near(GroupNorm(2, 4)(x), normalised(x, [](int64_t n, int64_t c) { return n * 2 + c / 2; }));
  expect_near(InstanceNorm1d(4)(x), normalised(x, [](int64_t n, int64_t c) { return n * 4 + c; }));
  const Tensor w = random_tensor(kFloat64, {4}, random), b = random_tensor(kFloat64, {4}, random);
  for (const auto& fn :
       {+[](std::span<const Tensor> in) { return batch_norm(in[0], Tensor(), Tensor(), in[1], in[2]); },
        +[](std::span<const Tensor> in) { return group_norm(in[0], 2, in[1], in[2]); }})
    EXPECT_TRUE(
        weft::testing::gradcheck([&](std::span<const Tensor> in) { return std::vector<Tensor>{fn(in)}; }, {x, w, b}));
}

TEST(ChannelNorm, BatchNormKeepsRunningStatistics) {
  Random random(4);
  const BatchNorm1d norm(2), average(2, {.momentum = -1});
  std::vector<double> mean(2), var(2, 1.0), means(2);
  for (int step = 0; step < 3; ++step) {
    const Tensor x = random_tensor(kFloat32, {4, 2, 3}, random);
    norm(x);
    average(x);
    for (int64_t c = 0; c < 2; ++c) {
      const std::vector<double> v = select(x, 1, c).contiguous().to_vector<double>();
      double m = 0, s = 0;
      for (double a : v) m += a / 12;
      for (double a : v) s += (a - m) * (a - m) / 11;
      mean[c] = 0.9 * mean[c] + 0.1 * m;
      var[c] = 0.9 * var[c] + 0.1 * s;
      means[c] += m / 3;
    }
  }
  for (int64_t c = 0; c < 2; ++c) {
    EXPECT_NEAR(norm.running_mean.value().to_vector<double>()[c], mean[c], 1e-6);
    EXPECT_NEAR(norm.running_var.value().to_vector<double>()[c], var[c], 1e-6);
    EXPECT_NEAR(average.running_mean.value().to_vector<double>()[c], means[c], 1e-6);
  }
  EXPECT_EQ(norm.num_batches_tracked.value().item<int64_t>(), 3);
  norm.eval();
  const Tensor x = random_tensor(kFloat32, {1, 2}, random);
  const std::vector<double> v = x.to_vector<double>(), y = norm(x).detach().to_vector<double>();
  for (int64_t c = 0; c < 2; ++c) EXPECT_NEAR(y[c], (v[c] - mean[c]) / std::sqrt(var[c] + 1e-5), 1e-5);
  EXPECT_EQ(norm.num_batches_tracked.value().item<int64_t>(), 3);
  EXPECT_EQ(norm.state_dict().size(), 5u);
}

TEST(ChannelNorm, ErrorsSayWhatIsNeeded) {
  const BatchNorm2d norm(3);
  EXPECT_EQ(error_of([&] { norm(ones({2, 3, 4})); }), "BatchNorm2d: x is f32[2, 3, 4]; need 4 dims");
  EXPECT_EQ(error_of([&] { norm(ones({2, 4, 5, 5})); }), "BatchNorm2d: x is f32[2, 4, 5, 5] with 4 channels; need 3");
  EXPECT_EQ(error_of([&] {
              norm(ones({1, 3, 1, 1}));
            }),
            "BatchNorm2d: x is f32[1, 3, 1, 1] with 1 value per channel; need 2 or more in training");
  EXPECT_EQ(error_of([] { GroupNorm(3, 4); }),
            "GroupNorm: 3 groups of 4 channels; need a number of groups that divides the channels");
}

TEST(ChannelNorm, LayersOfAConvolutionalNet) {
  const Conv2d conv(3, 8, 3, {.stride = 2, .padding = 1});
  const ConvTranspose2d up(8, 3, 4, {.stride = 2, .padding = 1});
  const MaxPool2d pool(2);
  const AdaptiveAvgPool2d whole(1);
  const BatchNorm2d norm(8);
  const Tensor x = randn({2, 3, 16, 16}), h = norm(conv(x));
  EXPECT_EQ(h.shape(), (Shape{2, 8, 8, 8}));
  EXPECT_EQ(pool(h).shape(), (Shape{2, 8, 4, 4}));
  EXPECT_EQ(AvgPool2d(3, {.stride = 2})(h).shape(), (Shape{2, 8, 3, 3}));
  EXPECT_EQ(whole(h).shape(), (Shape{2, 8, 1, 1}));
  EXPECT_EQ(up(h).shape(), (Shape{2, 3, 16, 16}));
  // Pools have no parameters and are often not registered: their ops have their class as scope.
  const auto scope_of = [](const auto& layer) {
    const Graph g = capture([&](const Tensor& t) { return layer(t); }, ones({1, 1, 4, 4}));
    return std::string(g.node(g.outputs[0].node).scope);
  };
  EXPECT_EQ(scope_of(pool), "MaxPool2d");
  EXPECT_EQ(scope_of(AvgPool2d(2)), "AvgPool2d");
  EXPECT_EQ(scope_of(AdaptiveAvgPool2d(1)), "AdaptiveAvgPool2d");
  EXPECT_EQ(scope_of(AdaptiveMaxPool2d(2)), "AdaptiveMaxPool2d");
  EXPECT_EQ(scope_of(Sequential(pool)), "0/MaxPool2d");
  EXPECT_EQ(conv.num_parameters(), 8 * 3 * 9 + 8);
  EXPECT_EQ(up.weight.shape(), (Shape{8, 3, 4, 4}));
  EXPECT_EQ(error_of([&] {
              conv(ones({2, 4, 5, 5}));
            }),
            "conv2d: input [2, 4, 5, 5] has 4 channels; weight [8, 3, 3, 3] needs 3");
  EXPECT_EQ(error_of([] { Conv2d(3, 8, 3, {.groups = 2}); }),
            "Conv2d: groups is 2; need a divisor of the channels 8 and 3");
}

}  // namespace
}  // namespace weft::nn
