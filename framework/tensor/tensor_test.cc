// The handle: aliasing, reading values, messages.
#include "framework/tensor/tensor.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "framework/base/testing/error_of.h"

namespace weft {
namespace {

using testing::error_of;

TEST(Tensor, CopiesAlias) {
  Tensor a = Tensor::from_vector({1, 2}, {2}), b = a;
  EXPECT_EQ(a.data<float>(), b.data<float>());
  Tensor c = std::move(b);
  EXPECT_FALSE(b.defined());
  EXPECT_EQ(c.to_vector<double>(), (std::vector<double>{1, 2}));
}

TEST(Tensor, ConvertsWhileReading) {
  EXPECT_EQ(Tensor::from_vector<bfloat16>({1.5f, -2.f}, {2}).to_vector<float>(), (std::vector<float>{1.5f, -2.f}));
  EXPECT_EQ(Tensor::from_vector({1.9f, -1.9f}, {2}).to_vector<int64_t>(), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(Tensor::from_vector({0.5f, 0.f}, {2}).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(Tensor::from_vector<bool>({true}, {}).item<float>(), 1.f);
  EXPECT_EQ(Tensor::from_vector<int64_t>({int64_t{1} << 60}, {1}).item<int64_t>(), int64_t{1} << 60);
}

TEST(Tensor, ReadsStridedViews) {
  Tensor t = Tensor::from_vector({1, 2, 3, 4, 5, 6}, {2, 3});
  auto* impl = new TensorImpl(t.get());
  impl->type.shape = {3, 1, 2};
  impl->strides = {1, 0, 3};
  Tensor view(impl);
  EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_FALSE(view.is_contiguous());
  EXPECT_NE(error_of([&] { view.data<float>(); }).find("call contiguous() first"), std::string::npos);
}

TEST(Tensor, MessagesSayWhatIsNeeded) {
  const auto sentence = [](auto fn) {
    const std::string error = error_of(fn);
    return error.substr(0, error.find("; at framework/tensor/tensor_test.cc:"));
  };
  EXPECT_EQ(sentence([] { Tensor().shape(); }), "tensor: used before it was given a value; need a defined tensor");
  EXPECT_EQ(sentence([] { Tensor::from_vector({1, 2}, {3}); }), "from_vector: got 2 values; shape [3] needs 3");
  Tensor t = Tensor::from_vector({1, 2}, {2});
  EXPECT_EQ(sentence([&] { t.item<float>(); }), "item: tensor f32[2] has 2 elements; need exactly one");
  EXPECT_EQ(sentence([&] { t.data<double>(); }), "data: asked for f64 of a tensor of f32; convert with to(f64)");
  EXPECT_EQ(sentence([&] { t.size(2); }), "size: dim 2 is out of range for a tensor of 1 dimension; need -1 to 0");
  EXPECT_EQ(sentence([] { Tensor::from_blob(nullptr, {1}, kFloat32); }),
            "from_blob: got null data for shape [1]; need memory");
  EXPECT_NE(error_of([] {
              Tensor::empty({kFloat32, Device::meta(), {2}}).item<float>();
            }).find("meta"),
            std::string::npos);
}

TEST(Tensor, FromBlobFreesOnce) {
  int freed = 0;
  float data[2] = {1, 2};
  {
    Tensor t = Tensor::from_blob(data, {2}, kFloat32, [&](void*) { ++freed; }), alias = t;
    EXPECT_EQ(t.data<float>(), data);
  }
  EXPECT_EQ(freed, 1);
}

TEST(Tensor, HandlesMoveBetweenThreads) {
  std::vector<std::thread> threads;
  Tensor shared = Tensor::from_vector({1, 2, 3}, {3});
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([shared] {
      for (int k = 0; k < 2000; ++k) {
        Tensor alias = shared, own = Tensor::from_vector({4}, {1});
        ASSERT_EQ(alias.to_vector<float>()[2] + own.item<float>(), 7);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(shared.impl()->refs.load(), 1);
}

}  // namespace
}  // namespace weft
