// Groups with the shapes of GPT-2's steps move no more bytes than their operands and results hold, 16 at a time, with
// enough in flight to fill a GPU of 132 multiprocessors. Nothing runs.
#include "compiler/targets/cuda/print/testing/traffic.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "compiler/loop_ir/lower_group.h"
#include "compiler/passes/lower.h"
#include "framework/base/str_cat.h"
#include "framework/dispatch/capture.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"
#include "ops/core/products/dot_product.h"

namespace weft::cuda {
namespace {

using Args = std::span<const Tensor>;

struct In {
  Shape shape;
  DType dtype = kFloat32;
};

// Rows of this type are padded as for products if they have `columns` elements.
loop_ir::ValueLayout layout_of(const TensorType& t, int64_t columns) {
  if (columns == 0 || t.shape.back() != columns) return {t, contiguous_strides(t.shape)};
  const int64_t apart = weft::internal::padded_distance(columns, itemsize(t.dtype), 16);
  return {t, *weft::internal::strides_of_rows(t.shape, columns, apart)};
}

// WEFT_SHOW prints the figures.
Traffic check(const std::string& name, const TensorFn& fn, const std::vector<In>& in, int64_t padded_columns = 0) {
  std::vector<TensorType> types;
  for (const In& i : in) types.push_back({i.dtype, Device::cpu(), i.shape});
  const Ref<Graph> graph = weft::internal::lower(*capture_graph(fn, types));
  EXPECT_EQ(loop_ir::cannot_lower(*graph), "") << name;
  std::vector<loop_ir::ValueLayout> ins, outs;
  for (const TensorType& t : types) ins.push_back(layout_of(t, padded_columns));
  for (Value v : graph->outputs) outs.push_back(layout_of(graph->type(v), padded_columns));
  const loop_ir::Lowered low = loop_ir::lower_group(*graph, ins, outs, {});
  DeviceLimits device;
  device.max_shared_bytes = 227 * 1024;
  const CudaLaunches p = plan(low, outs, device);
  const Traffic t = traffic_of(low, p.launches[0], device);
  if (std::getenv("WEFT_SHOW"))
    printf("%-30s %.1f MB, moved %.1f, under way %.2f; %lld blocks of %d  %s\n", name.c_str(), t.arguments / 1e6,
           t.moved / 1e6, t.under_way / 1e6, static_cast<long long>(t.blocks), t.threads, t.how.c_str());
  EXPECT_EQ(fault_of(t, device), "") << name << "\n" << p.launches[0].kernel.text.substr(loop_intrinsics().size());
  return t;
}

Tensor wide(const Tensor& x) { return x.to(kFloat32); }

TEST(Traffic, OfElementwiseGroups) {
  for (DType d : {kFloat32, kBFloat16}) {
    check("gelu", [](Args x) { return std::vector{gelu(x[0], "tanh")}; }, {{{8192, 3072}, d}});
    check("bias and residual", [](Args x) { return std::vector{x[0] + x[1] + x[2]}; },
          {{{8192, 768}, d}, {{8192, 768}, d}, {{768}}});
    check("cast", [](Args x) { return std::vector{x[0].to(kBFloat16)}; }, {{{3072, 768}}});
    check("heads",
          [](Args x) {
            return std::vector{x[0].permute({0, 2, 1, 3}).contiguous() * 1.0};
          },
          {{{8, 1024, 12, 64}, d}});
  }
}

TEST(Traffic, OfTransposes) {
  for (DType d : {kFloat32, kBFloat16}) {
    check("transpose and sum", [](Args x) { return std::vector{x[0].transpose(0, 1) + x[1]}; },
          {{{16384, 8192}, d}, {{8192, 16384}, d}});
    check("transpose of a stack", [](Args x) { return std::vector{x[0].transpose(1, 2) * 2.0}; },
          {{{96, 1024, 256}, d}});
    check("transpose with an odd side", [](Args x) { return std::vector{x[0].transpose(0, 1) + x[1]}; },
          {{{50257, 768}, d}, {{768, 50257}, d}});
  }
}

TEST(Traffic, OfSumsAlongRows) {
  for (DType d : {kFloat32, kBFloat16})
    for (int64_t n : {256, 768, 1600, 4096}) {
      const Shape rows{8192, n};
      check(str_cat("softmax ", n), [](Args x) { return std::vector{softmax(x[0], -1)}; }, {{rows, d}});
      check(str_cat("layer norm ", n), [=](Args x) { return std::vector{layer_norm(x[0], {n}, x[1], x[2])}; },
            {{rows, d}, {{n}, d}, {{n}, d}});
      check(str_cat("rms norm of a sum ", n),
            [=](Args x) {
              const Tensor y = x[0] + x[1];
              return std::vector{y, rms_norm(y, {n}, x[2])};
            },
            {{rows, d}, {rows, d}, {{n}, d}});
    }
  check("softmax of an odd vocabulary", [](Args x) { return std::vector{softmax(x[0], -1)}; },
        {{{8192, 50257}, kBFloat16}});
}

// The logits of an odd vocabulary in the arena.
TEST(Traffic, OfPaddedRows) {
  const int64_t n = 50257;
  const In logits{{8192, n}, kBFloat16};
  const TensorFn gradient = [](Args x) { return std::vector{(exp(wide(x[0]) - x[1]) * 0.125).to(x[0].dtype())}; };
  check("gradient of logits", gradient, {logits, {{8192, 1}}}, n);
  const TensorFn capped = [](Args x) { return std::vector{tanh(x[0] * 0.125) * 8.0}; };
  check("capped logits", capped, {logits}, n);
  const TensorFn rows = [](Args x) { return std::vector{softmax(x[0], -1)}; };
  check("softmax", rows, {logits}, n);
}

TEST(Traffic, OfSumsOverRows) {
  for (DType d : {kFloat32, kBFloat16})
    for (int64_t n : {768, 2304}) {
      const Shape rows{8192, n};
      check(str_cat("bias ", n), [](Args x) { return std::vector{sum(wide(x[0]), {0})}; }, {{rows, d}});
      check(str_cat("bias beside an elementwise result ", n),
            [](Args x) {
              const Tensor y = wide(x[0]) * sigmoid(wide(x[1]));
              return std::vector{y.to(x[0].dtype()), sum(y, {0})};
            },
            {{rows, d}, {rows, d}});
      const Traffic t = check(str_cat("norm backward ", n),
                              [](Args x) {
                                const Tensor a = wide(x[0]), g = wide(x[2]) * x[1];
                                const Tensor r = rsqrt(mean(a * a, {-1}, true) + 1e-5), h = a * r;
                                return std::vector{((g - h * mean(g * h, {-1}, true)) * r).to(x[0].dtype()),
                                                   sum(wide(x[2]) * h, {0}), sum(wide(x[2]), {0})};
                              },
                              {{rows, d}, {{n}}, {rows, d}});
      if (n == 768) {
        EXPECT_GE(t.resident, 2) << "a block that waits for sums along rows needs another block that works";
      }
    }
}

TEST(Traffic, OfFewLongRows) {
  for (DType d : {kFloat32, kBFloat16})
    for (int64_t n : {1 << 20, 38597376})
      check(str_cat("norm ", n), [](Args x) { return std::vector{sum(wide(x[0]) * wide(x[0]))}; }, {{{n}, d}});
}

}  // namespace
}  // namespace weft::cuda
