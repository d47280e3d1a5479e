// Operations of fused nodes on the emulated GPU, compared with the CPU op by op. Sums of products use small whole
// numbers, so that their bits do not depend on the order.
#include "compiler/targets/cuda/run/operation.h"

#include <gtest/gtest.h>

#include "compiler/loop_ir/fused.h"
#include "compiler/targets/cuda/attention/testing/emulated_case.h"
#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/run/batch_operation.h"
#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "compiler/targets/cuda/testing/gpu/run_operation.h"
#include "framework/dispatch/capture.h"
#include "framework/testing/values.h"
#include "ops/attention/flex_attention.h"
#include "ops/attention/record.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using testing::FusedRun;
using testing::run_fused;
using testing::ScopedEmulatedGpu;
using Inputs = std::span<const Tensor>;
using Outputs = std::vector<Tensor>;

Tensor whole(const Shape& shape, int seed, DType t = kFloat32) {
  std::vector<float> v(shape.numel());
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>((i * 7 + seed * 13) % 5) - 2;
  return Tensor::from_vector<float>(v, shape).to(t);
}

void expect_same(const FusedRun& r) {
  ASSERT_EQ(r.run.out.size(), r.want.size());
  for (size_t i = 0; i < r.want.size(); ++i)
    EXPECT_TRUE(weft::testing::same_bits(r.run.out[i], r.want[i])) << "result " << i;
  EXPECT_FALSE(r.run.bad);
}

std::unique_ptr<DeviceOperation> prepare_fused(const TensorFn& fn, const std::vector<Tensor>& in) {
  std::vector<TensorType> types;
  std::vector<StridedView> views, results;
  for (const Tensor& x : in) {
    types.push_back(x.type());
    views.push_back(x.view_for_kernel());
  }
  const Ref<Graph> body = capture_graph(fn, types);
  for (Value v : body->outputs) {
    const TensorType& t = body->type(v);
    results.push_back({nullptr, t.dtype, t.shape, contiguous_strides(t.shape)});
  }
  return prepare(loop_ir::fused_op, Attrs{{"body", body}}, views, results, gpu_properties(0));
}

// The kernels of batches of an update and of a norm's part compile. Operations of other sizes have the same key, except
// short sums.
TEST(Operation, BatchesCompile) {
  ScopedEmulatedGpu gpu;
  const TensorFn update = [](Inputs in) {
    const Tensor m = in[1] * 0.9 + in[2] * 0.1, v = in[3] * 0.999 + in[2] * in[2] * 0.001;
    return Outputs{in[0] - m / (sqrt(v) + 1e-8) * 0.01, m, v};
  };
  const TensorFn norm = [](Inputs in) { return Outputs{sum(in[0] * in[0])}; };
  std::vector<Kernel> kernels;
  for (int64_t n : {4096, 200000}) {
    const auto two = prepare_fused(norm, {whole({n}, 1)}), same = prepare_fused(norm, {whole({n + 1024}, 1)});
    if (n > 4096) {
      EXPECT_EQ(batch_key(*two), batch_key(*same)) << n;
    }
    const Tensor x = whole({n}, 1), y = whole({2 * n}, 1);
    const auto one = prepare_fused(update, {x, x, x, x});
    EXPECT_EQ(batch_key(*one), batch_key(*prepare_fused(update, {y, y, y, y}))) << n;
    for (const DeviceOperation* o : {one.get(), two.get()}) {
      EXPECT_NE(batch_key(*o), "");
      const BatchOperation batch(*o);
      kernels.insert(kernels.end(), batch.kernels().begin(), batch.kernels().end());
    }
  }
  std::string table;
  WEFT_EXPECT_COMPILES(kernels, {}, tested_archs(), &table);
  if (std::getenv("WEFT_SHOW")) printf("%s", table.c_str());
}

TEST(Operation, GroupsOfOps) {
  ScopedEmulatedGpu gpu;
  const Tensor x = whole({9, 33}, 1), w = whole({33}, 2);
  auto rows = [](Inputs in) {
    const Tensor y = in[0] * in[1], e = exp(y - amax(y, -1, true));
    return Outputs{e / sum(e, -1, true), tanh(in[0])};
  };
  const FusedRun one = run_fused(rows, {x, w});
  expect_same(one);
  EXPECT_EQ(one.run.kernels, 1);
  // Sums over rows need two kernels, with scratch memory between them.
  auto columns = [](Inputs in) {
    const Tensor y = in[0] / (sum(abs(in[0]), -1, true) + 1);
    return Outputs{y, sum(y, 0)};
  };
  const FusedRun r = run_fused(columns, {whole({2100, 7}, 3)});
  expect_same(r);
  EXPECT_EQ(r.run.kernels, 2);
  EXPECT_GT(r.run.workspace, 0);
}

TEST(Operation, EpiloguesOfCublasLt) {
  ScopedEmulatedGpu gpu;
  for (DType t : {kFloat32, kBFloat16, kFloat16}) {
    const Tensor x = whole({6, 8}, 1, t), w = whole({8, 16}, 2, t), bias = whole({16}, 3, t), y = whole({6, 16}, 4, t);
    const FusedRun r = run_fused([](Inputs in) { return Outputs{mm(in[0], in[1]) + in[2]}; }, {x, w, bias});
    expect_same(r);
    EXPECT_EQ(r.run.kernels, 0) << to_string_view(t);
    EXPECT_EQ(gpu.cublaslt().ran().back().epilogue, lt::kBias);
    expect_same(run_fused([](Inputs in) { return Outputs{mm(in[0], in[1]) + in[2]}; }, {x, w, y}));
  }
}

TEST(Operation, EpiloguesByKernels) {
  ScopedEmulatedGpu gpu;
  for (DType t : {kFloat32, kBFloat16}) {
    const Tensor x = whole({6, 8}, 1, t), w = whole({8, 16}, 2, t), bias = whole({16}, 3, t);
    OperationOptions options;
    options.round_like_eager = true;
    const FusedRun r = run_fused(
        [](Inputs in) {
          const Tensor p = mm(in[0], in[1]);
          return Outputs{relu(p) * in[2], p};
        },
        {x, w, bias}, options);
    expect_same(r);
    EXPECT_EQ(r.run.kernels, 1) << to_string_view(t);
  }
}

TEST(Operation, OperandsThatTheBodyComputes) {
  ScopedEmulatedGpu gpu;
  const Tensor x = whole({48, 40}, 1), w = whole({40, 56}, 2), s = whole({40}, 3);
  const FusedRun r = run_fused([](Inputs in) { return Outputs{relu(mm(in[0] * in[2], neg(in[1])))}; }, {x, w, s});
  expect_same(r);
  EXPECT_EQ(r.run.kernels, 3);
}

TEST(Operation, GroupsOfRows) {
  ScopedEmulatedGpu gpu;
  for (DType t : {kFloat32, kBFloat16}) {
    const Tensor x = whole({20, 16}, 1, t), w = whole({3, 16, 24}, 2, t);
    const Tensor offsets = Tensor::from_vector<int64_t>({0, 7, 7, 20}, {4});
    auto fn = [](Inputs in) { return Outputs{relu(grouped_matmul(in[0], in[1], in[2]))}; };
    OperationOptions options;
    options.round_like_eager = true;
    expect_same(run_fused(fn, {x, w, offsets}, options));
    const Tensor wrong = Tensor::from_vector<int64_t>({0, 7, 7, 21}, {4});
    auto types = [&](const Tensor& v) { return v.type(); };
    const testing::OperationRun bad = testing::run_operation(grouped_dot_op, Attrs{{"mode", std::string("rows")}},
                                                             {x, w, wrong}, {types(whole({20, 24}, 0, t))});
    EXPECT_TRUE(bad.bad);
  }
}

TEST(Operation, IndicesInsideOfGroups) {
  ScopedEmulatedGpu gpu;
  const Tensor x = whole({5, 8}, 1);
  auto fn = [](Inputs in) { return Outputs{index_select(in[0], 0, in[1]) * 2}; };
  expect_same(run_fused(fn, {x, Tensor::from_vector<int64_t>({4, 0, 2}, {3})}));
}

// The bits of attention's kernels launched by hand: without a mask, with few queries, and with enough for TMA.
TEST(Operation, Attention) {
  ScopedEmulatedGpu gpu;
  for (bool many : {false, true}) {
    const Tensor q = whole({1, 2, many ? 80 : 20, 16}, 1, kBFloat16), k = whole({1, 2, 36, 16}, 2, kBFloat16),
                 v = whole({1, 2, 36, 16}, 3, kBFloat16);
    auto attend = [](Inputs in) { return Outputs{flex_attention(in[0], in[1], in[2])}; };
    const Ref<Graph> g = capture_graph(attend, std::vector{q.type(), k.type(), v.type()});
    int found = 0;
    for (int32_t id = 0; id < g->size(); ++id) {
      const Node& n = g->node(id);
      if (n.op != &attention_op) continue;
      ++found;
      ASSERT_EQ(n.inputs.size(), 3u);
      AttentionKernelOptions options;
      options.sm90a = true;
      options.maps = many;
      const std::vector<Tensor> in = {q, k, v}, want = run_emulated(n.attrs, in, false, options);
      const testing::OperationRun r =
          testing::run_operation(attention_op, n.attrs, in, {n.outputs.begin(), n.outputs.end()});
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(weft::testing::same_bits(r.out[i], want[i])) << i;
    }
    EXPECT_EQ(found, 1);
  }
}

TEST(Operation, WhatNoKernelTakesRunsOpByOp) {
  ScopedEmulatedGpu gpu;
  expect_same(run_fused(
      [](Inputs in) {
        return Outputs{relu(softmax(in[0], -1) * 2), in[0].transpose(0, 1)};
      },
      {whole({3, 7}, 1)}));
  // A sum of no terms is zero. Without elements nothing runs.
  expect_same(run_fused([](Inputs in) { return Outputs{mm(in[0], in[1]) + 1}; }, {whole({3, 0}, 1), whole({0, 4}, 1)}));
  expect_same(
      run_fused([](Inputs in) { return Outputs{relu(mm(in[0], in[1]))}; }, {whole({0, 3}, 1), whole({3, 4}, 1)}));
}

}  // namespace
}  // namespace weft::cuda
