// The text of tensors, as PyTorch prints the same values (dtype names apart).
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <sstream>

#include "framework/tensor/tensor.h"

namespace weft {
namespace {

std::string text(const std::vector<float>& v, const Shape& shape) { return Tensor::from_vector(v, shape).to_string(); }

TEST(Print, ChoosesOneFormat) {
  EXPECT_EQ(text({1, 2, 3}, {3}), "tensor([1., 2., 3.])");
  EXPECT_EQ(text({1.5f, 2.25f}, {2}), "tensor([1.5000, 2.2500])");
  EXPECT_EQ(text({-1.5f, 22.25f}, {2}), "tensor([-1.5000, 22.2500])");
  EXPECT_EQ(text({1e-5f, 1}, {2}), "tensor([1.0000e-05, 1.0000e+00])");
  EXPECT_EQ(text({1e10f}, {1}), "tensor([1.0000e+10])");
  EXPECT_EQ(text({1, 1000}, {2}), "tensor([   1., 1000.])");
  EXPECT_EQ(text({1, 1001}, {2}), "tensor([1.0000e+00, 1.0010e+03])");
  EXPECT_EQ(text({0, 0.00009f}, {2}), "tensor([0.0000e+00, 9.0000e-05])");
  EXPECT_EQ(text({-0.f, 0}, {2}), "tensor([-0., 0.])");
}

TEST(Print, NotFinite) {
  EXPECT_EQ(text({NAN, 1.5f, INFINITY}, {3}), "tensor([   nan, 1.5000,    inf])");
  EXPECT_EQ(text({NAN, 1, -INFINITY}, {3}), "tensor([nan, 1., -inf])");
  EXPECT_EQ(text({-NAN}, {1}), "tensor([nan])");
  EXPECT_EQ(text({1e-6f, INFINITY}, {2}), "tensor([1.0000e-06,        inf])");
}

TEST(Print, ShapesAndDtypes) {
  EXPECT_EQ(text({3.5f}, {}), "tensor(3.5000)");
  EXPECT_EQ(text({}, {0}), "tensor([])");
  EXPECT_EQ(text({}, {0, 3}), "tensor([], size=(0, 3))");
  EXPECT_EQ(Tensor::from_vector<int64_t>({}, {0}).to_string(), "tensor([], dtype=i64)");
  EXPECT_EQ(text({1, 2, 3, 4}, {2, 2}), "tensor([[1., 2.],\n        [3., 4.]])");
  EXPECT_EQ(text({1, 2, 3, 4}, {2, 1, 2}), "tensor([[[1., 2.]],\n\n        [[3., 4.]]])");
  EXPECT_EQ(Tensor::from_vector<int64_t>({-1, 20}, {2}).to_string(), "tensor([-1, 20])");
  EXPECT_EQ(Tensor::from_vector<int64_t>({INT64_MIN, INT64_MAX}, {2}).to_string(),
            "tensor([-9223372036854775808,  9223372036854775807])");
  EXPECT_EQ(Tensor::from_vector<int32_t>({1, 2}, {2}).to_string(), "tensor([1, 2], dtype=i32)");
  EXPECT_EQ(Tensor::from_vector<uint8_t>({7}, {}).to_string(), "tensor(7, dtype=u8)");
  EXPECT_EQ(Tensor::from_vector<bool>({true, false}, {2}).to_string(), "tensor([ True, False])");
  EXPECT_EQ(Tensor::from_vector<bfloat16>({1.5f, 0.1f}, {2}).to_string(), "tensor([1.5000, 0.1001], dtype=bf16)");
  EXPECT_EQ(Tensor::from_vector<float16>({0.1f}, {1}).to_string(), "tensor([0.1000], dtype=f16)");
  EXPECT_EQ(Tensor::from_vector<double>({0.1}, {1}).to_string(), "tensor([0.1000], dtype=f64)");
}

TEST(Print, LinesOfEightyCharacters) {
  std::vector<int64_t> v(30);
  std::iota(v.begin(), v.end(), 0);
  EXPECT_EQ(Tensor::from_vector(v, {30}).to_string(),
            "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
            "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])");
  std::vector<int32_t> w(18);
  std::iota(w.begin(), w.end(), 10);
  EXPECT_EQ(Tensor::from_vector(w, {18}).to_string(),
            "tensor([10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27],\n"
            "       dtype=i32)");
}

TEST(Print, SummarisesAboveAThousand) {
  std::vector<int64_t> v(2000);
  std::iota(v.begin(), v.end(), 0);
  EXPECT_EQ(Tensor::from_vector(v, {2000}).to_string(), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])");
  v.resize(1000);
  EXPECT_EQ(Tensor::from_vector(v, {1000}).to_string().find("..."), std::string::npos);
  EXPECT_EQ(text(std::vector<float>(10000), {100, 100}),
            "tensor([[0., 0., 0.,  ..., 0., 0., 0.],\n"
            "        [0., 0., 0.,  ..., 0., 0., 0.],\n"
            "        [0., 0., 0.,  ..., 0., 0., 0.],\n"
            "        ...,\n"
            "        [0., 0., 0.,  ..., 0., 0., 0.],\n"
            "        [0., 0., 0.,  ..., 0., 0., 0.],\n"
            "        [0., 0., 0.,  ..., 0., 0., 0.]])");
  // The format depends on the elements that are shown.
  std::vector<float> hidden(1001, 1);
  hidden[500] = 0.123f;
  EXPECT_EQ(text(hidden, {1001}), "tensor([1., 1., 1.,  ..., 1., 1., 1.])");
}

TEST(Print, StridedTensorsShowTheirOwnElements) {
  Tensor t = Tensor::from_vector({1, 2, 3, 4, 5, 6}, {2, 3});
  auto* impl = new TensorImpl(t.get());
  impl->type.shape = {3, 2};
  impl->strides = {1, 3};
  EXPECT_EQ(Tensor(impl).to_string(), "tensor([[1., 4.],\n        [2., 5.],\n        [3., 6.]])");
}

TEST(Print, TensorsWithoutValues) {
  EXPECT_EQ(Tensor().to_string(), "Tensor(undefined)");
  EXPECT_EQ(Tensor::empty({kFloat32, Device::meta(), {2, 3}}).to_string(), "Tensor(meta f32[2, 3])");
  auto* impl = new TensorImpl;
  impl->type = {kFloat32, Device::cpu(), {2, 3}};
  impl->trace = make_ref<RefCounted>();
  std::ostringstream out;
  out << Tensor(impl);
  EXPECT_EQ(out.str(), "Tensor(traced f32[2, 3])");
}

}  // namespace
}  // namespace weft
