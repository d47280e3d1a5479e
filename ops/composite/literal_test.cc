#include "ops/composite/literal.h"

#include <cmath>

#include "compiler/exec/compile.h"
#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

TEST(Literal, HasTheShapeAndTheDtypeOfItsNumbers) {
  EXPECT_EQ(tensor(3).type(), (TensorType{kInt64, Device::cpu(), {}}));
  EXPECT_EQ(tensor(3).item<int64_t>(), 3);
  EXPECT_EQ(tensor(2.5).type(), (TensorType{kFloat32, Device::cpu(), {}}));
  EXPECT_EQ(tensor(true).dtype(), kBool);
  EXPECT_EQ(tensor({1.0, 2.0}).type(), (TensorType{kFloat32, Device::cpu(), {2}}));
  EXPECT_EQ(tensor({1}).shape(), Shape({1}));
  EXPECT_EQ(tensor({{1, 2}}).shape(), Shape({1, 2}));
  const Tensor m = tensor({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(m.type(), (TensorType{kInt64, Device::cpu(), {2, 3}}));
  EXPECT_EQ(m.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(tensor({{{1.0}, {2.0}}, {{3.0}, {4.0}}}).shape(), Shape({2, 2, 1}));
  EXPECT_EQ(tensor({1, 2.5}).to_vector<float>(), (std::vector<float>{1, 2.5}));
  EXPECT_EQ(tensor({true, false}).dtype(), kBool);
  EXPECT_EQ(tensor({true, false}).to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(tensor({true, 3}).to_vector<int64_t>(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(tensor({}).type(), (TensorType{kFloat32, Device::cpu(), {0}}));
  EXPECT_EQ(tensor({{}, {}}).shape(), Shape({2, 0}));
  EXPECT_EQ(tensor(std::vector<uint8_t>{7}).dtype(), kUInt8);
  EXPECT_EQ(tensor(std::vector<bool>{true}).dtype(), kBool);
  EXPECT_EQ(tensor(std::vector<int>{}).type(), (TensorType{kInt64, Device::cpu(), {0}}));
  EXPECT_EQ(tensor(std::vector<bfloat16>{bfloat16(2.f)}).dtype(), kBFloat16);
  EXPECT_EQ(tensor(std::vector<std::vector<int>>{{1}, {2}}).shape(), Shape({2, 1}));
  EXPECT_EQ(scalar(3.0).type(), (TensorType{kFloat32, Device::cpu(), {}}));
  EXPECT_EQ(scalar(3).dtype(), kInt64);
}

TEST(Literal, KeepsIntegersAndTakesOptions) {
  const int64_t big = (int64_t{1} << 62) + 1;
  EXPECT_EQ(tensor({big, -big}).to_vector<int64_t>(), (std::vector<int64_t>{big, -big}));
  EXPECT_EQ(tensor({1, 2}, {.dtype = kFloat64}).dtype(), kFloat64);
  EXPECT_EQ(tensor({0.1}, {.dtype = kFloat64}).item<double>(), 0.1);
  EXPECT_EQ(tensor({1.75, -1.75}, {.dtype = kInt32}).to_vector<int32_t>(), (std::vector<int32_t>{1, -1}));
  EXPECT_TRUE(tensor({1.0}, {.requires_grad = true}).requires_grad_enabled());
  EXPECT_EQ(scalar(2, {.dtype = kFloat16}).dtype(), kFloat16);
  for (DType t : {kFloat64, kFloat32, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kFloat8E4M3}) {
    EXPECT_EQ(tensor({0.0, 2.0}, {.dtype = t}).dtype(), t);
    EXPECT_EQ(tensor({0, 2}, {.dtype = t}).to(kFloat32).to_vector<float>(), (std::vector<float>{0, 2}));
  }
  EXPECT_EQ(tensor({0.5, 0.0}, {.dtype = kBool}).to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));
  // It has values in a captured function.
  const Tensor x = tensor({1, 2, 3});
  EXPECT_EQ(compile([](Tensor a) {
              return a[tensor({true, false, true})];
            })(x)
                .to_vector<int64_t>(),
            (std::vector<int64_t>{1, 3}));
}

TEST(Literal, ErrorsNameWhatDoesNotFit) {
  EXPECT_EQ(error_of([] { tensor({{1, 2}, {3}}); }), "tensor: rows 0 and 1 have shapes [2] and [1]; need equal shapes");
  EXPECT_EQ(error_of([] {
              tensor({Literal{1}, Literal(2)});
            }),
            "tensor: rows 0 and 1 have shapes [1] and []; need equal shapes");
  EXPECT_EQ(error_of([] { tensor({300}, {.dtype = kUInt8}); }), "tensor: 300 does not fit u8; need 0 to 255");
  expect_error([] { tensor({std::nan("")}, {.dtype = kInt64}); }, "does not fit i64");
  EXPECT_EQ(error_of([] { tensor({70000}, {.dtype = kFloat16}); }),
            "tensor: 70000 does not fit f16; need -65504 to 65504");
  expect_error([] { tensor(~uint64_t{0}); }, "18446744073709551615 does not fit i64");
  EXPECT_EQ(error_of([] { scalar({1, 2}); }), "scalar: got numbers of shape [2]; need one number, or tensor()");
}

TEST(Literal, AnIntegerIsAShape) {
  EXPECT_EQ(zeros(3).shape(), Shape({3}));
  EXPECT_EQ(full(2, 7.0).to_vector<float>(), (std::vector<float>{7, 7}));
  EXPECT_EQ(rand(size_t{4}).shape(), Shape({4}));
  EXPECT_EQ(ones({2, 3}).view(6).shape(), Shape({6}));
  EXPECT_EQ(ones({2, 3}).sum(1).shape(), Shape({2}));
  EXPECT_EQ(sum(ones({2, 3}), -1).to_vector<float>(), (std::vector<float>{3, 3}));
}

}  // namespace
}  // namespace weft::testing
