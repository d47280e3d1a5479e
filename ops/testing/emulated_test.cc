// Runs the ops' samples eagerly on the emulated GPU and compares with the CPU: the same bits, except for matrix
// products. cuBLASLt adds their terms in any order, so they are checked against the reference's bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "compiler/targets/cuda/run/operation.h"
#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "compiler/targets/cuda/testing/gpu/run_operation.h"
#include "framework/base/cpu.h"
#include "framework/dispatch/dispatch.h"
#include "ops/all_ops.h"
#include "ops/core/core.h"
#include "ops/testing/cases.h"

namespace weft::testing {
namespace {

using cuda::testing::ScopedEmulatedGpu;

// Whether an op may round otherwise than on the CPU: its sums have another order, or the kernels of the CPU have no
// fused multiply-add.
bool rounds_otherwise(std::string_view op) {
  return selected_isa() == Isa::baseline || op == "dot" || op == "conv" || op == "grouped_dot" ||
         op == "linear_cross_entropy" || op == "linear_cross_entropy_grad";
}

// All samples in f32, and the first sample in every other dtype.
std::vector<Case> chosen_cases(const OpDef& op) {
  std::vector<Case> all = cases_of(op), chosen;
  std::vector<DType> seen;
  for (Case& c : all) {
    const DType t = c.in.empty() ? kFloat32 : c.in[0].dtype();
    const bool fresh = std::find(seen.begin(), seen.end(), t) == seen.end();
    if (t != kFloat32 && !fresh) continue;
    seen.push_back(t);
    chosen.push_back(std::move(c));
  }
  return chosen;
}

std::vector<const OpDef*> run_on_gpus() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : all_ops()) {
    const std::string_view name = op->name;
    if (op->is(kStructural) || !op->samples) continue;
    if (op->is(kCollective) || op->is(kSideEffect) || name == "rank_coordinate" || name == "copy_to") continue;
    ops.push_back(op);
  }
  return ops;
}

class EmulatedOps : public ::testing::TestWithParam<const OpDef*> {};

// Builds the kernels of all cases together.
void load_all(const std::vector<Case>& cases) {
  cuda::Gpu& gpu = cuda::Gpu::get(0);
  std::vector<std::unique_ptr<cuda::DeviceOperation>> operations;
  std::vector<cuda::DeviceOperation*> raw;
  cuda::OperationOptions options;
  options.gpu = &gpu;
  for (const Case& c : cases) {
    std::vector<StridedView> in, out;
    for (const Tensor& t : c.in) in.push_back({nullptr, t.dtype(), t.shape(), contiguous_strides(t.shape())});
    for (const TensorType& t : infer(c, c.in)) out.push_back({nullptr, t.dtype, t.shape, contiguous_strides(t.shape)});
    if (c.op->kernel) {
      operations.push_back(cuda::prepare(*c.op, c.attrs, in, out, gpu.properties(), 16, options));
      raw.push_back(operations.back().get());
    }
  }
  cuda::load(gpu, raw);
}

TEST_P(EmulatedOps, GiveTheBitsOfTheCpu) {
  const OpDef& op = *GetParam();
  const std::vector<Case> cases = chosen_cases(op);
  ScopedEmulatedGpu gpu;
  load_all(cases);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.label);
    const std::vector<Tensor> want = run(c, c.in);
    std::vector<Tensor> in, got;
    for (const Tensor& t : c.in) in.push_back(t.to(Device::cuda()));
    if (in.empty()) {  // made on the requested device
      const Types types = infer(c, {});
      got = cuda::testing::run_operation(op, c.attrs, {}, {types.begin(), types.end()}).out;
    } else {
      for (const Tensor& t : run(c, in)) got.push_back(t.to(Device::cpu()));
    }
    ASSERT_EQ(got.size(), want.size());
    if (rounds_otherwise(op.name)) {
      EXPECT_TRUE(matches_reference(c, c.in, got));
      continue;
    }
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << "result " << i;
  }
}

// GPU operands that are transposed (the first dim is contiguous), or that begin one element after a boundary.
Tensor transposed(const Tensor& t) {
  if (t.dim() < 2) return t.to(Device::cuda());
  Shape back;
  for (int d = t.dim() - 1; d >= 0; --d) back.push_back(d);
  return permute(permute(t, back).contiguous().to(Device::cuda()), back);
}
Tensor shifted(const Tensor& t) {
  const int64_t n = t.numel();
  if (n == 0) return t.to(Device::cuda());
  Tensor flat = Tensor::empty({t.dtype(), Device::cpu(), {n + 1}});
  const StridedView to = flat.view_for_kernel(), from = t.contiguous().view_for_kernel();
  const int64_t size = itemsize(t.dtype());
  std::memset(to.data, 0, size);
  std::memcpy(to.as<char>() + size, from.data, n * size);
  return reshape(flat.to(Device::cuda()).slice(0, 1, n + 1), t.shape());
}

TEST_P(EmulatedOps, TakeOperandsAsTheyLie) {
  const OpDef& op = *GetParam();
  ScopedEmulatedGpu gpu;
  int left = 2;
  for (const Case& c : chosen_cases(op)) {
    if (c.in.empty() || c.in[0].numel() < 2 || left-- <= 0) continue;
    SCOPED_TRACE(c.label);
    const std::vector<Tensor> want = run(c, c.in);
    for (auto place : {transposed, shifted}) {
      std::vector<Tensor> in, got;
      for (const Tensor& t : c.in) in.push_back(place(t));
      for (const Tensor& t : run(c, in)) got.push_back(t.to(Device::cpu()));
      if (rounds_otherwise(op.name)) {
        EXPECT_TRUE(matches_reference(c, c.in, got));
        continue;
      }
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << "result " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedOps, ::testing::ValuesIn(run_on_gpus()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace weft::testing
