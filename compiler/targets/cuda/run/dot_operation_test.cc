// Products fused with their neighbours on the emulated GPU. In f32 they have the bits of the same ops run one by one.
#include <gtest/gtest.h>

#include "compiler/loop_ir/fused.h"
#include "compiler/passes/lower.h"
#include "compiler/targets/cuda/run/operation.h"
#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "framework/dispatch/capture.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using Inputs = std::span<const Tensor>;

// t with `more` elements, all 7, after each row; and its first `columns` columns.
Tensor with_padding(const Tensor& t, int64_t more) {
  Shape padding = t.shape();
  padding.back() = more;
  return more == 0 ? t : cat({t, full(padding, 7, {.dtype = t.dtype(), .device = t.device()})}, -1);
}
Tensor left(const Tensor& t, int64_t columns) { return slice(t, -1, 0, columns); }

// Runs `fn` op by op and as one fused node, and expects the same bits. Returns the kernels of the fused node. Rows of
// its operands and results have this padding, which nothing may write.
std::vector<std::string> check(const TensorFn& fn, const std::vector<Tensor>& in, int64_t padding = 0) {
  testing::ScopedEmulatedGpu gpu;
  std::vector<TensorType> types;
  std::vector<Tensor> on_gpu;
  for (const Tensor& t : in) {
    on_gpu.push_back(t.to(Device::cuda()));
    if (padding > 0) on_gpu.back() = left(with_padding(on_gpu.back(), padding), t.shape().back());
    types.push_back(on_gpu.back().type());
  }
  const std::vector<Tensor> apart = fn(on_gpu);
  std::vector<Tensor> want;
  for (const Tensor& t : apart) want.push_back(t.to(Device::cpu()));
  size_t before = 0;
  const Ref<Graph> body = weft::internal::lower(*capture_graph(fn, types));
  std::vector<StridedView> views, out_views;
  std::vector<void*> addresses, out_addresses;
  std::vector<Tensor> wide, got;
  for (const Tensor& t : on_gpu) {
    views.push_back(t.view_for_kernel());
    addresses.push_back(views.back().data);
  }
  for (const Tensor& t : apart) {
    wide.push_back(with_padding(t * 0.0, padding));
    got.push_back(padding > 0 ? left(wide.back(), t.shape().back()) : wide.back());
    out_views.push_back(got.back().view_for_kernel());
    out_addresses.push_back(out_views.back().data);
  }
  Gpu& device = Gpu::get(0);
  const std::unique_ptr<DeviceOperation> op =
      prepare(loop_ir::fused_op, {{"body", body}}, views, out_views, device.properties(), 16, {.gpu = &device});
  DeviceOperation* const ops[] = {op.get()};
  load(device, ops);
  const Tensor workspace = randn({op->workspace_bytes() / 4 + 1}).to(Device::cuda()),
               bad = Tensor::from_vector(std::vector<int32_t>(sizeof(BadIndex) / 4), {sizeof(BadIndex) / 4})
                         .to(Device::cuda());
  before = (device.synchronize(), gpu.driver().kernels_run().size());
  op->enqueue({addresses, out_addresses, workspace.view_for_kernel().data, bad.view_for_kernel().as<int32_t>()},
              device.stream(), {});
  device.synchronize();
  std::vector<std::string> ran = gpu.driver().kernels_run();
  ran.erase(ran.begin(), ran.begin() + static_cast<int64_t>(before));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(all(got[i].to(Device::cpu()) == want[i]).item<bool>());
    if (padding == 0) continue;
    const int64_t n = got[i].shape().back();
    EXPECT_TRUE(all(slice(wide[i].to(Device::cpu()), -1, n, n + padding) == 7.0).item<bool>());
  }
  EXPECT_EQ(bad.to(Device::cpu()).to_vector<int32_t>()[0], 0);
  return ran;
}

TEST(DotOperation, Residual) {
  manual_seed(1);
  const auto ran = check([](Inputs x) { return std::vector{mm(x[0], x[1]) + x[2]}; },
                         {randn({12, 8}), randn({8, 16}), randn({12, 16})});
  EXPECT_EQ(ran, std::vector<std::string>{"cublaslt_matmul"});
}

// Whole numbers, so that no sum is rounded.
TEST(DotOperation, BiasInF32IsCastFirst) {
  auto whole = [](const Shape& shape) { return randint(-3, 4, shape).to(kFloat32); };
  manual_seed(5);
  const auto ran = check([](Inputs x) { return std::vector{mm(x[0], x[1]) + cast(x[2], kBFloat16)}; },
                         {whole({12, 8}).to(kBFloat16), whole({8, 16}).to(kBFloat16), whole({16})});
  ASSERT_EQ(ran.size(), 2u);
  EXPECT_EQ(ran[1], "cublaslt_matmul");
}

TEST(DotOperation, WhatCublasLtDoesNotFinish) {
  manual_seed(2);
  const auto ran = check([](Inputs x) { return std::vector{silu(mm(x[0], x[1])) * x[2]}; },
                         {randn({12, 8}), randn({8, 16}), randn({12, 16})});
  EXPECT_EQ(ran.size(), 2u);
}

// Rows of 13 and 37 elements that start at multiples of 16 bytes.
TEST(DotOperation, PaddedRows) {
  manual_seed(4);
  const std::vector<Tensor> in = {randn({12, 13}), randn({13, 37}), randn({12, 37})};
  EXPECT_EQ(check([](Inputs x) { return std::vector{mm(x[0], x[1]) + x[2]}; }, in, 3),
            std::vector<std::string>{"cublaslt_matmul"});
  EXPECT_EQ(check([](Inputs x) { return std::vector{silu(mm(x[0], x[1])) * x[2]}; }, in, 3).size(), 2u);
  EXPECT_EQ(check([](Inputs x) { return std::vector{mm(x[0], x[1])}; }, in, 3),
            std::vector<std::string>{"cublaslt_matmul"});
}

// The tile that the epilogue's kernel reads has aligned rows too.
TEST(DotOperation, TheTileOfOddRows) {
  manual_seed(5);
  check([](Inputs x) { return std::vector{silu(mm(x[0], x[1])) * x[2]}; },
        {randn({12, 8}), randn({8, 37}), randn({12, 37})});
}

TEST(DotOperation, ExpertsAreFinishedInTheTile) {
  manual_seed(3);
  const Tensor offsets = Tensor::from_vector(std::vector<int64_t>{2, 9, 9, 30}, {4});
  const auto ran = check([](Inputs x) { return std::vector{silu(grouped_matmul(x[0], x[1], x[2])) * x[3]}; },
                         {randn({32, 8}), randn({3, 8, 20}), offsets, randn({32, 20})});
  EXPECT_EQ(ran.size(), 1u);
}

}  // namespace
}  // namespace weft::cuda
