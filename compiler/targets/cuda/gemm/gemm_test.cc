// Kernels of grouped products: the emulation must match the CPU's kernels, and the kernels must compile on every
// architecture within their limits.
#include "compiler/targets/cuda/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/testing/emulate/emulate.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using GroupedBy = GroupedGemm::GroupedBy;

Attrs mode_attrs(GroupedBy mode) { return {{"mode", std::string(mode == GroupedBy::rows ? "rows" : "contraction")}}; }

Tensor grouped_dot(GroupedBy mode, const Tensor& a, const Tensor& b, const Tensor& offsets, DType out) {
  return dispatch(grouped_dot_op, {&a, &b, &offsets}, mode_attrs(mode).with("out_dtype", out));
}

// Sums of k terms in f32 on tensor cores (which may drop bits below the last) or in the type itself, in any order,
// rounded twice to the dtype of the result (Higham, Accuracy and Stability, 3.1).
void expect_close(GroupedBy mode, const Tensor& a, const Tensor& b, const Tensor& offsets, const Tensor& got) {
  const Tensor wide_a = a.to(kFloat64), wide_b = b.to(kFloat64);
  const Tensor want = grouped_dot(mode, wide_a, wide_b, offsets, kFloat64),
               size = grouped_dot(mode, abs(wide_a), abs(wide_b), offsets, kFloat64);
  ASSERT_EQ(got.shape(), want.shape());
  const double terms = static_cast<double>(mode == GroupedBy::rows ? a.shape()[1] : a.shape()[0]);
  const double unit = a.dtype() == kFloat64 ? 0x1p-53 : itemsize(a.dtype()) == 2 ? 0x1p-23 : 0x1p-24;
  const double half_ulp = got.dtype() == kFloat64   ? 0x1p-53
                          : got.dtype() == kFloat32 ? 0x1p-24
                          : got.dtype() == kFloat16 ? 0x1p-11
                                                    : 0x1p-8;
  const auto w = want.to_vector<double>(), s = size.to_vector<double>(), g = got.to(kFloat64).to_vector<double>();
  for (size_t i = 0; i < w.size(); ++i)
    ASSERT_LE(std::abs(g[i] - w[i]), s[i] * (2 * terms * unit + half_ulp) + 0x1p-24) << "element " << i;
}

// Runs the kernel in the emulation with a few blocks. The result starts as garbage.
Tensor emulated(GroupedBy mode, const Tensor& a, const Tensor& b, const Tensor& offsets, DType out_type, int blocks = 2,
                int sm = 80) {
  const Tensor out = full(grouped_dot(mode, a, b, offsets, out_type).shape(), 77.0).to(out_type);
  const StridedView in[] = {a.view_for_kernel(), b.view_for_kernel(), offsets.view_for_kernel()};
  const StridedView y = out.view_for_kernel();
  const GroupedGemmKernel k = gemm_kernel(grouped_problem(mode_attrs(mode), in, y), "grouped", nullptr, sm);
  EXPECT_EQ(k.kernel.only_sm90a, sm == 90);
  int32_t bad = 0;
  if (k.most_tiles) {
    Emulated e({&k.kernel, 1});
    e.launch("grouped", k.grid(blocks), GemmParams{in[0].data, in[1].data, in[2].data, y.data, &bad});
    EXPECT_EQ(e.bank_conflicts(), 0);
  }
  EXPECT_EQ(bad, 0);
  return out;
}

Tensor offsets_of(const std::vector<int64_t>& at) { return Tensor::from_vector(at, {static_cast<int64_t>(at.size())}); }

TEST(GroupedGemm, RowsAndTermsOfGroups) {
  manual_seed(1);
  // Rows before, after, groups without rows, groups that end inside tiles.
  const Tensor offsets = offsets_of({3, 3, 40, 41, 110, 140});
  for (DType t : {kBFloat16, kFloat16, kFloat32, kFloat64}) {
    const Tensor x = randn({150, 40}).to(t), w = randn({5, 40, 136}).to(t), g = randn({150, 136}).to(t);
    expect_close(GroupedBy::rows, x, w, offsets, emulated(GroupedBy::rows, x, w, offsets, t));
    expect_close(GroupedBy::contraction, x, g, offsets, emulated(GroupedBy::contraction, x, g, offsets, t));
    if (itemsize(t) == 2) {
      expect_close(GroupedBy::rows, x, w, offsets, emulated(GroupedBy::rows, x, w, offsets, kFloat32));
      // The product of the gradient: terms of w are contiguous.
      const Tensor wt = transpose(w, 1, 2);
      expect_close(GroupedBy::rows, g, wt, offsets, emulated(GroupedBy::rows, g, wt, offsets, t));
    }
  }
}

TEST(GroupedGemm, WarpgroupsOfSm90) {
  manual_seed(6);
  // Rows before and after the groups, an empty group, more pieces of terms than the ring holds, both tile widths.
  const Tensor offsets = offsets_of({5, 5, 140, 290});
  for (DType t : {kBFloat16, kFloat16})
    for (int64_t n : {72, 136}) {
      const int64_t k = n == 72 ? 328 : 40;
      const Tensor x = randn({300, k}).to(t), w = randn({3, k, n}).to(t), g = randn({300, n}).to(t);
      expect_close(GroupedBy::rows, x, w, offsets, emulated(GroupedBy::rows, x, w, offsets, t, 2, 90));
      if (t == kFloat16) continue;
      const Tensor wt = transpose(w, 1, 2);
      expect_close(GroupedBy::rows, g, wt, offsets, emulated(GroupedBy::rows, g, wt, offsets, t, 2, 90));
      if (k > 64)
        expect_close(GroupedBy::contraction, x, g, offsets, emulated(GroupedBy::contraction, x, g, offsets, t, 2, 90));
    }
}

TEST(GroupedGemm, WideTilesOfSm90) {
  manual_seed(7);
  // Enough columns to make tiles wide; most of them are zero.
  const Tensor offsets = offsets_of({0, 100, 132}), x = randn({132, 24}).to(kBFloat16);
  const Tensor w = randn({2, 24, 256 * 66}).to(kBFloat16);
  expect_close(GroupedBy::rows, x, w, offsets, emulated(GroupedBy::rows, x, w, offsets, kBFloat16, 1, 90));
}

TEST(GroupedGemm, WhatCannotBeVectorised) {
  manual_seed(2);
  const Tensor offsets = offsets_of({0, 7, 33}).to(kInt32);
  for (DType t : {kBFloat16, kFloat32}) {
    const Tensor x = randn({33, 17}).to(t), w = randn({2, 17, 9}).to(t), g = randn({33, 9}).to(t);
    expect_close(GroupedBy::rows, x, w, offsets, emulated(GroupedBy::rows, x, w, offsets, t));
    expect_close(GroupedBy::contraction, x, g, offsets, emulated(GroupedBy::contraction, x, g, offsets, t));
    // Operands inside others, not 16-byte aligned, with negative strides or with steps.
    const Tensor wide = randn({33, 64}).to(t);
    const Tensor part = slice(wide, 1, 3, 20), steps = slice(wide, 1, 0, 34, 2);
    expect_close(GroupedBy::rows, part, w, offsets, emulated(GroupedBy::rows, part, w, offsets, t));
    expect_close(GroupedBy::rows, steps, w, offsets, emulated(GroupedBy::rows, steps, w, offsets, t));
    const Tensor xt = transpose(randn({17, 33}).to(t), 0, 1);
    expect_close(GroupedBy::rows, xt, w, offsets, emulated(GroupedBy::rows, xt, w, offsets, t));
    expect_close(GroupedBy::contraction, xt, g, offsets, emulated(GroupedBy::contraction, xt, g, offsets, t));
  }
}

TEST(GroupedGemm, ManyGroupsAndBlocks) {
  manual_seed(3);
  std::vector<int64_t> at(71);
  for (int i = 0; i < 71; ++i) at[i] = i * 4 - i % 3;
  at[0] = 0;
  const Tensor offsets = offsets_of(at), x = randn({290, 16}).to(kBFloat16), w = randn({70, 16, 8}).to(kBFloat16);
  const Tensor one = emulated(GroupedBy::rows, x, w, offsets, kBFloat16, 1);
  expect_close(GroupedBy::rows, x, w, offsets, one);
  // The same bits for any number of blocks.
  EXPECT_TRUE(all(one == emulated(GroupedBy::rows, x, w, offsets, kBFloat16, 7)).item<bool>());
  const Tensor none = randn({0, 16}).to(kBFloat16);
  expect_close(GroupedBy::rows, none, w, zeros({71}).to(kInt64),
               emulated(GroupedBy::rows, none, w, zeros({71}).to(kInt64), kBFloat16));
}

TEST(GroupedGemm, BadOffsetsAreToldAndStayInside) {
  const Tensor x = ones({20, 8}), w = ones({2, 8, 4}), y = zeros({20, 4});
  for (const std::vector<int64_t>& at : {std::vector<int64_t>{0, 12, 9}, {-4, 3, 20}, {0, 5, 1000}}) {
    const Tensor offsets = offsets_of(at);
    const StridedView in[] = {x.view_for_kernel(), w.view_for_kernel(), offsets.view_for_kernel()};
    const GroupedGemmKernel k =
        gemm_kernel(grouped_problem(mode_attrs(GroupedBy::rows), in, y.view_for_kernel()), "grouped");
    int32_t bad = 0;
    Emulated e({&k.kernel, 1}, {.races = false});  // groups that overlap write the same rows
    e.launch("grouped", k.grid(2), GemmParams{in[0].data, in[1].data, in[2].data, y.view_for_kernel().data, &bad});
    EXPECT_EQ(bad, 1);
  }
}

TEST(Gemm, BatchesOfIntegers) {
  manual_seed(4);
  for (DType t : {kInt32, kInt64}) {
    const Tensor a = randint(-9, 9, {2, 5, 19}).to(t), b = randint(-9, 9, {2, 19, 70}).to(t), want = bmm(a, b);
    const Tensor y = zeros_like(want);
    GroupedGemm g;
    g.mode = GroupedBy::dense;
    g.in = g.out = t;
    g.groups = 2;
    g.m = 5;
    g.n = 70;
    g.k = 19;
    g.a_e = 5 * 19;
    g.a_m = 19;
    g.b_e = 19 * 70;
    g.b_k = 70;
    g.y_row = 70;
    const GroupedGemmKernel k = gemm_kernel(g, "batch");
    Emulated e({&k.kernel, 1});
    e.launch(
        "batch", k.grid(3),
        GemmParams{a.view_for_kernel().data, b.view_for_kernel().data, nullptr, y.view_for_kernel().data, nullptr});
    EXPECT_TRUE(all(y == want).item<bool>());
  }
}

TEST(Gemm, AHookTakesTheSums) {
  manual_seed(5);
  const Tensor offsets = offsets_of({0, 20, 70}), x = randn({70, 24}).to(kBFloat16),
               w = randn({2, 24, 20}).to(kBFloat16), bias = randn({20});
  const Tensor plain = emulated(GroupedBy::rows, x, w, offsets, kFloat32), y = zeros({70, 20});
  GemmHook hook;
  hook.fields = "  const float* bias;\n";
  hook.text = R"(static inline void finish(const P& p, int64 row, int col, int count, const f32 (&v)[8]) {
  for (int i = 0; i < count; ++i) ((float*)p.y)[row * kY_row + col + i] = w_relu(v[i] + p.bias[col + i]);
}
)";
  struct Params : GemmParams {
    const float* bias;
  };
  const StridedView in[] = {x.view_for_kernel(), w.view_for_kernel(), offsets.view_for_kernel()};
  const GroupedGemmKernel k =
      gemm_kernel(grouped_problem(mode_attrs(GroupedBy::rows), in, y.view_for_kernel()), "hooked", &hook);
  Params p{{in[0].data, in[1].data, in[2].data, y.view_for_kernel().data, nullptr}, bias.data<float>()};
  Emulated e({&k.kernel, 1});
  e.launch("hooked", k.grid(2), p);
  // The same bits as the product followed by the same ops.
  EXPECT_TRUE(all(y == relu(plain + bias)).item<bool>());
}

GroupedGemm experts(GroupedBy mode, DType t, int64_t n = 256, int64_t k = 192) {
  GroupedGemm g;
  g.mode = mode;
  g.in = g.out = t;
  g.groups = 8;
  g.n = n;
  if (mode == GroupedBy::contraction) {
    g.m = k;
    g.k = 2048;
    g.a_m = 1;
    g.a_k = k;
    g.b_k = n;
  } else {
    g.m = 2048;
    g.k = k;
    g.a_m = k;
    g.b_e = n * k;
    g.b_k = n;
    g.a_e = mode == GroupedBy::dense ? g.m * k : 0;
  }
  g.y_row = n;
  return g;
}

TEST(Gemm, CompilesWithinLimits) {
  std::vector<Kernel> kernels;
  auto add = [&](const GroupedGemm& g, int sm = 80) {
    kernels.push_back(gemm_kernel(g, "gemm_" + std::to_string(kernels.size()), nullptr, sm).kernel);
  };
  add(experts(GroupedBy::rows, kBFloat16), 90);
  add(experts(GroupedBy::rows, kBFloat16, 2560), 90);
  add(experts(GroupedBy::contraction, kFloat16, 128), 90);
  for (DType t : {kBFloat16, kFloat32}) {
    add(experts(GroupedBy::rows, t));
    add(experts(GroupedBy::contraction, t));
  }
  add(experts(GroupedBy::rows, kBFloat16, 255, 190));  // nothing is vectorised
  // b is contiguous along the summed dim, as in the product of a gradient.
  GroupedGemm transposed = experts(GroupedBy::rows, kFloat16);
  transposed.b_k = 1;
  transposed.b_n = 192;
  add(transposed);
  GroupedGemm few = experts(GroupedBy::rows, kBFloat16);
  few.m = 256;
  add(few);
  add(experts(GroupedBy::dense, kInt64));
  std::string table;
  WEFT_EXPECT_COMPILES(kernels, {}, tested_archs(), &table);
}

}  // namespace
}  // namespace weft::cuda
