// Products with the ops after them in one kernel: the same bits as the product followed by the group in the
// interpreter.
#include "compiler/targets/cuda/gemm/fused_product.h"

#include <gtest/gtest.h>

#include <cstring>

#include "compiler/loop_ir/testing/run_lowered.h"
#include "compiler/passes/lower.h"
#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/testing/emulate/emulate.h"
#include "framework/dispatch/capture.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using Inputs = std::span<const Tensor>;

std::vector<Kernel> compiled;  // for NVRTC, at the end

// Runs `fn` of `in` by emulation of one kernel, and by its product and the interpreter; compares bits.
void check(const std::string& name, const TensorFn& fn, const std::vector<Tensor>& in, int sm = 80, int blocks = 2) {
  SCOPED_TRACE(name);
  std::vector<TensorType> types;
  std::vector<StridedView> views;
  std::vector<loop_ir::ValueLayout> in_layouts, out_layouts;
  for (const Tensor& t : in) {
    types.push_back(t.type());
    views.push_back(t.view_for_kernel());
    in_layouts.push_back({t.type(), t.strides()});
  }
  const Ref<Graph> body = weft::internal::lower(*capture_graph(fn, types));
  ASSERT_EQ(loop_ir::cannot_lower(*body), "");
  for (Value v : body->outputs) out_layouts.push_back({body->type(v), contiguous_strides(body->type(v).shape)});
  const loop_ir::Lowered low = loop_ir::lower_group(*body, in_layouts, out_layouts, {});
  ASSERT_GE(low.dot, 0);

  // Only the product, in f32.
  const Node& dot = body->node(low.dot);
  std::vector<StridedView> operands;
  for (Value v : dot.inputs) operands.push_back(views[body->node(v).attrs.i("index")]);
  GroupedGemm g;
  if (dot.op == &grouped_dot_op) {
    StridedView f32{nullptr, kFloat32, dot.outputs[0].shape, contiguous_strides(dot.outputs[0].shape)};
    g = grouped_problem(dot.attrs, operands, f32);
  } else {
    const StridedView &a = operands[0], &b = operands[1];
    const bool batch = a.shape.size() == 3;
    g.mode = GroupedGemm::GroupedBy::dense;
    g.in = a.dtype;
    g.groups = batch ? a.shape[0] : 1;
    g.m = a.shape[a.shape.size() - 2];
    g.k = a.shape.back();
    g.n = b.shape.back();
    g.a_e = batch ? a.strides[0] : 0;
    g.a_m = a.strides[a.strides.size() - 2];
    g.a_k = a.strides.back();
    g.b_e = batch ? b.strides[0] : 0;
    g.b_k = b.strides[b.strides.size() - 2];
    g.b_n = b.strides.back();
    g.y_row = g.n;
  }
  g.out = kFloat32;
  std::vector<float> tile(low.outer_points() * low.lanes());
  const GroupedGemmKernel alone = gemm_kernel(g, "alone", nullptr, sm);
  DeviceLimits device;
  device.multiprocessors = blocks;
  std::optional<CudaLaunch> launch = fused_product(low, out_layouts, g, sm, device, {.symbol = "fused"});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->kernel.only_sm90a, sm == 90);
  const Kernel kernels[] = {alone.kernel, launch->kernel};
  Emulated e(kernels);
  int32_t bad = 0;
  const void* offsets = operands.size() > 2 ? operands[2].data : nullptr;
  e.launch("alone", alone.grid(blocks), GemmParams{operands[0].data, operands[1].data, offsets, tile.data(), &bad});

  std::vector<std::vector<char>> want, got;
  std::vector<void*> want_at, got_at;
  for (const loop_ir::ValueLayout& l : out_layouts) {
    want.emplace_back(l.type.nbytes(), 1);
    got.emplace_back(l.type.nbytes(), 2);
  }
  for (size_t i = 0; i < want.size(); ++i) {
    want_at.push_back(want[i].data());
    got_at.push_back(got[i].data());
  }
  std::vector<StridedView> want_views;
  for (size_t i = 0; i < want.size(); ++i)
    want_views.push_back({want_at[i], out_layouts[i].type.dtype, out_layouts[i].type.shape, out_layouts[i].strides});
  loop_ir::run_lowered(low, views, want_views, tile.data());

  std::vector<char> params = launch->params;
  const int n = static_cast<int>(low.bound.size());
  for (const Pointer& p : launch->pointers) {
    const void* at = nullptr;
    if (p.kind == Pointer::kBad) at = &bad;
    if (p.kind == Pointer::kOperand && p.index >= n) at = p.index == n + 2 ? offsets : operands[p.index - n].data;
    if (p.kind == Pointer::kOperand && p.index < n) {
      const loop_ir::BoundOperand& b = low.bound[p.index];
      char* base = static_cast<char*>(b.output ? got_at[b.index] : views[b.index].data);
      at = base + b.offset * itemsize(low.kernel.operands[p.index].dtype);
    }
    std::memcpy(params.data() + p.at, &at, sizeof at);
  }
  e.launch("fused", launch->grid, std::as_bytes(std::span(params)));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(want[i] == got[i]) << "output " << i;
  EXPECT_EQ(bad, 0);
  if (compiled.size() == 4 && sm != 90) return;  // these are enough for NVRTC
  launch->kernel.symbol += std::to_string(compiled.size());
  const std::string was = " fused(", now = " " + launch->kernel.symbol + "(";
  launch->kernel.text.replace(launch->kernel.text.find(was), was.size(), now);
  compiled.push_back(launch->kernel);
}

TEST(FusedProduct, OpsOfEveryKind) {
  manual_seed(1);
  for (DType t : {kBFloat16, kFloat32}) {
    const Tensor a = randn({70, 40}).to(t), b = randn({40, 72}).to(t), bias = randn({72}).to(t),
                 c = randn({70, 72}).to(t), column = randn({70, 1});
    check("residual", [](Inputs x) { return std::vector{mm(x[0], x[1]) + x[2]}; }, {a, b, c});
    check("bias, gelu, both kept",
          [](Inputs x) {
            const Tensor h = mm(x[0], x[1]) + x[2];
            return std::vector{gelu(h, "tanh"), h};
          },
          {a, b, bias});
    check("gated, a number for each row",
          [](Inputs x) { return std::vector{silu(mm(x[0], x[1])).to(kFloat32) * x[2].to(kFloat32) * x[3]}; },
          {a, b, c, column});
    check("transposed operand", [](Inputs x) { return std::vector{mm(x[0], x[1]) * x[2]}; },
          {a, b, transpose(randn({72, 70}).to(t), 0, 1)});
  }
}

TEST(FusedProduct, OddExtentsAndBatches) {
  manual_seed(2);
  const Tensor a = randn({3, 5, 17}).to(kBFloat16), b = randn({3, 17, 9}).to(kBFloat16), bias = randn({5, 1});
  check("batch", [](Inputs x) { return std::vector{relu(bmm(x[0], x[1]).to(kFloat32) + x[2])}; }, {a, b, bias});
}

TEST(FusedProduct, Experts) {
  manual_seed(3);
  const Tensor offsets = Tensor::from_vector(std::vector<int64_t>{2, 2, 30, 100, 134}, {5});
  for (int sm : {80, 90}) {
    const int64_t rows = sm == 90 ? 300 : 140;
    const Tensor x = randn({rows, 32}).to(kBFloat16), w = randn({4, 32, 136}).to(kBFloat16),
                 up = randn({rows, 136}).to(kBFloat16);
    check(
        "experts, gated", [](Inputs in) { return std::vector{silu(grouped_matmul(in[0], in[1], in[2])) * in[3]}; },
        {x, w, offsets, up}, sm);
  }
}

TEST(FusedProduct, ThoseCompileWithinLimits) { WEFT_EXPECT_COMPILES(compiled); }

}  // namespace
}  // namespace weft::cuda
