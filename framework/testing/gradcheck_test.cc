// Tests of the checks themselves: they must detect errors.
#include "framework/testing/gradcheck.h"

#include <cmath>
#include <limits>

#include "framework/autodiff/grad.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft::testing {
namespace {

TensorFn with_slope(double factor) {
  auto f =
      custom_grad([](Tensor x) { return sin(x); }, [=](Tensor x, Tensor, Tensor dy) { return dy * cos(x) * factor; });
  return [f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0])}; };
}

TEST(Gradcheck, SeesADerivativeThatIsSlightlyWrong) {
  Random random(1);
  std::vector<Tensor> in{random_tensor(kFloat64, {3, 4}, random)};
  EXPECT_TRUE(gradcheck(with_slope(1), in));
  EXPECT_FALSE(gradcheck(with_slope(1 + 1e-5), in));
  EXPECT_FALSE(gradcheck(with_slope(1 + 1e-5), in, {.captured = true}));
  EXPECT_FALSE(gradcheck(with_slope(0), in));
}

TEST(Gradcheck, SeesAWrongSecondDerivative) {
  Random random(1);
  std::vector<Tensor> in{random_tensor(kFloat64, {5}, random)};
  TensorFn cut = [](std::span<const Tensor> a) { return std::vector<Tensor>{a[0] * (a[0] * a[0]).detach()}; };
  EXPECT_FALSE(gradcheck(cut, in));
  TensorFn fine = [](std::span<const Tensor> a) { return std::vector<Tensor>{a[0] * a[0] * a[0]}; };
  EXPECT_TRUE(gradgradcheck(fine, in));
  auto flat =
      custom_grad([](Tensor x) { return x * x; }, [](Tensor x, Tensor, Tensor dy) { return dy * 2.0 * x.detach(); });
  TensorFn wrong = [flat](std::span<const Tensor> a) { return std::vector<Tensor>{flat(a[0])}; };
  EXPECT_TRUE(gradcheck(wrong, in));
  EXPECT_FALSE(gradgradcheck(wrong, in));
}

TEST(Compare, OfBitsTellsZerosApartAndNansEqual) {
  auto of = [](float v) { return Tensor::from_vector<float>({v}, {1}); };
  EXPECT_TRUE(same_bits(of(std::nanf("")), of(-std::nanf("1"))));
  EXPECT_FALSE(same_bits(of(0.f), of(-0.f)));
  EXPECT_FALSE(same_bits(of(1.f), of(std::nextafter(1.f, 2.f))));
  EXPECT_FALSE(same_bits(of(1.f), Tensor::from_vector<float>({1}, {})));
}

TEST(Compare, WithinABound) {
  Tensor x = Tensor::from_vector<float>({1, std::numeric_limits<float>::infinity(), std::nanf("")}, {3});
  const Real inf = std::numeric_limits<Real>::infinity(), nan = std::numeric_limits<Real>::quiet_NaN();
  EXPECT_TRUE(within(x, {1.01L, inf, nan}, {0.02L, 0, 0}));
  EXPECT_FALSE(within(x, {1.01L, inf, nan}, {0.005L, 0, 0}));
  EXPECT_FALSE(within(x, {1, -inf, nan}, {1, 1, 1}));
  EXPECT_FALSE(within(x, {1, inf, 0}, {1, 1, 1}));
  EXPECT_FALSE(within(x, {1, 5, nan}, {1, 1, 1}));
  EXPECT_TRUE(within(x, {1, 4e38L, nan}, {0, 0, 0})) << "beyond the range of f32";
}

TEST(Compare, RoundsToEven) {
  EXPECT_EQ(rounded(1 + 0x1p-8L, kBFloat16), 1);
  EXPECT_EQ(rounded(1 + 3 * 0x1p-8L, kBFloat16), 1 + 0x1p-6L);
  EXPECT_EQ(rounded(65520, kFloat16), std::numeric_limits<Real>::infinity());
  EXPECT_EQ(rounded(0x1p-25L, kFloat16), 0);
  EXPECT_EQ(rounded(300, kUInt8), 44);
}

TEST(Values, LayoutsShowTheSameValues) {
  Random random(2);
  Tensor x = random_tensor(kFloat32, {3, 4, 5}, random);
  for (Layout layout : {Layout::kTransposed, Layout::kStepped}) {
    Tensor y = with_layout(x, layout);
    EXPECT_FALSE(y.is_contiguous());
    EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  }
  EXPECT_EQ(with_layout(x, Layout::kBroadcast).strides()[0], 0);
}

}  // namespace
}  // namespace weft::testing
