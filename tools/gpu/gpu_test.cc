// Ops and attention on a GPU, compared with references and the CPU. Tests named Small also run under NVIDIA's
// sanitizer.
#include "framework/cuda/gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "compiler/targets/cuda/run/operation.h"
#include "framework/cuda/libraries/driver_api.h"
#include "framework/testing/compare.h"
#include "ops/all_ops.h"
#include "ops/testing/cases.h"
#include "tools/gpu/extents.h"
#include "weft.h"

namespace weft::testing {
namespace {

// ---- ops ----

std::vector<const OpDef*> ops_of_gpus() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : all_ops()) {
    const std::string_view name = op->name;
    const bool plain = !op->is(kStructural) && !op->is(kCollective) && !op->is(kSideEffect);
    if (plain && op->samples && name != "rank_coordinate" && name != "copy_to") ops.push_back(op);
  }
  return ops;
}

// Compiles the kernels of all cases at once, on all cores. A kernel that does not compile fails in its own test.
void build_together(const std::vector<Case>& cases) {
  cuda::Gpu& gpu = cuda::Gpu::get(0);
  cuda::OperationOptions options;
  options.gpu = &gpu;
  std::vector<std::unique_ptr<cuda::DeviceOperation>> operations;
  std::vector<cuda::DeviceOperation*> raw;
  for (const Case& c : cases) {
    if (!c.op->kernel || c.in.empty()) continue;
    std::vector<StridedView> in, out;
    for (const Tensor& t : c.in) in.push_back({nullptr, t.dtype(), t.shape(), contiguous_strides(t.shape())});
    for (const TensorType& t : infer(c, c.in)) out.push_back({nullptr, t.dtype, t.shape, contiguous_strides(t.shape)});
    try {
      operations.push_back(cuda::prepare(*c.op, c.attrs, in, out, gpu.properties(), 16, options));
      raw.push_back(operations.back().get());
    } catch (const Error&) {
    }
  }
  try {
    cuda::load(gpu, raw);
  } catch (const Error&) {
  }
}

class Ops : public ::testing::TestWithParam<const OpDef*> {
 protected:
  using Check = std::function<::testing::AssertionResult(const Case& c, const std::vector<Tensor>& got)>;
  void compare(const std::vector<Case>& cases, const Check& check);
};
class SmallOps : public Ops {};
class LargeOps : public Ops {};

void Ops::compare(const std::vector<Case>& cases, const Check& check) {
  int64_t wanted = 0, ran = 0;
  build_together(cases);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.label);
    if (c.in.empty()) continue;
    ++wanted;
    std::vector<Tensor> in, got;
    for (const Tensor& t : c.in) in.push_back(t.to(Device::cuda()));
    try {
      for (const Tensor& t : run(c, in)) got.push_back(t.to(Device::cpu()));
    } catch (const Error& e) {
      if (e.code() != Code::kUnavailable) throw;
      continue;  // no kernel for this dtype
    }
    ++ran;
    EXPECT_TRUE(check(c, got));
  }
  std::printf("%s: %lld of %lld cases have a kernel\n", GetParam()->name, static_cast<long long>(ran),
              static_cast<long long>(wanted));
  EXPECT_TRUE(ran > 0 || wanted == 0);  // a missing library has the same error
}

TEST_P(SmallOps, MatchTheReference) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  std::vector<Case> cases = cases_of(*GetParam());
  if (shrunk()) cases.resize(std::min<size_t>(cases.size(), 2));
  compare(cases, [](const Case& c, const std::vector<Tensor>& got) { return matches_reference(c, c.in, got); });
}

// Calls of many blocks have the CPU's bits. Exceptions are products, which a library sums in its own order, and
// functions of f64, which come from each compiler's library.
TEST_P(LargeOps, HaveTheBitsOfTheCpu) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  if (shrunk()) GTEST_SKIP() << "many blocks take an emulated GPU minutes";
  const OpDef& op = *GetParam();
  const bool product = op.is(kContraction) && !std::string_view(op.name).starts_with("exact_");
  compare(large_cases_of(op), [&](const Case& c, const std::vector<Tensor>& got) {
    if (product || (op.is(kPointwise) && c.in[0].dtype() == kFloat64)) return matches_reference(c, c.in, got);
    ::testing::AssertionResult same = ::testing::AssertionSuccess();
    const std::vector<Tensor> want = run(c, c.in);
    for (size_t i = 0; same && i < want.size(); ++i) same = same_bits(got[i], want[i]);
    return same;
  });
}

INSTANTIATE_TEST_SUITE_P(All, SmallOps, ::testing::ValuesIn(ops_of_gpus()),
                         [](const auto& info) { return std::string(info.param->name); });
INSTANTIATE_TEST_SUITE_P(All, LargeOps, ::testing::ValuesIn(ops_of_gpus()),
                         [](const auto& info) { return std::string(info.param->name); });

// ---- attention, at sizes of many blocks ----

struct AttentionCase {
  const char* name;
  int64_t batch, heads, kv_heads, q_len, kv_len, dim;
  DType dtype;
  bool causal, alibi;
  bool documents = false;  // the mask reads a table on the GPU
  bool blocks = false;     // the mask is a BlockMask, whose lists of blocks the kernels walk
};

class Attention : public ::testing::TestWithParam<AttentionCase> {};

double largest(const Tensor& t) { return amax(t.to(kFloat64).abs()).item<double>(); }

// Compares with the CPU in f32 on the same 16-bit operands. Bound: the roundings of the products' operands (p is
// rounded once, q k^T is exact) and of the result.
TEST_P(Attention, IsThatOfTheCpu) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  AttentionCase c = GetParam();
  if (shrunk()) {
    c.q_len = std::min<int64_t>(c.q_len, 70), c.kv_len = std::min<int64_t>(c.kv_len, 130);
    if (!c.causal || c.q_len < c.kv_len) c.q_len = std::min<int64_t>(c.q_len, 40);
    c.heads = c.heads / c.kv_heads, c.kv_heads = 1, c.batch = 1;
  }
  manual_seed(3);
  auto operand = [&](int64_t heads, int64_t length) { return randn({c.batch, heads, length, c.dim}).to(c.dtype); };
  const Tensor q = operand(c.heads, c.q_len), k = operand(c.kv_heads, c.kv_len), v = operand(c.kv_heads, c.kv_len),
               weights = randn({c.batch, c.heads, c.q_len, c.dim});
  auto call = [&](Device device, DType dtype) {
    FlexAttentionOptions options{.score_mod = c.alibi ? attention::alibi(c.heads) : ScoreMod(),
                                 .mask_mod = c.causal ? attention::causal().shift(c.kv_len - c.q_len, 0) : MaskMod(),
                                 .enable_gqa = c.heads != c.kv_heads};
    if (c.documents) {
      const Tensor ids = (arange(c.kv_len, {.dtype = kInt64}) / 37).to(kInt64).to(c.blocks ? Device::cpu() : device);
      options.mask_mod = options.mask_mod & MaskMod([ids](weft::Index, weft::Index, weft::Index i, weft::Index j) {
                           return ids[i] == ids[j];
                         });
    }
    if (c.blocks) {
      options.block_mask = create_block_mask(options.mask_mod, 1, 1, c.q_len, c.kv_len);
      options.mask_mod = MaskMod();
    }
    std::vector<Tensor> in{q.to(dtype).to(device), k.to(dtype).to(device), v.to(dtype).to(device)};
    for (Tensor& t : in) t = t.requires_grad();
    const Tensor y = flex_attention(in[0], in[1], in[2], options);
    std::vector<Tensor> out{y};
    for (const Tensor& g : grad(sum(y.to(kFloat32) * weights.to(device)), in)) out.push_back(g);
    for (Tensor& t : out) t = t.to(Device::cpu()).to(kFloat32);
    return out;
  };
  const std::vector<Tensor> want = call(Device::cpu(), kFloat32), got = call(Device::cuda(), c.dtype);
  const double u = c.dtype == kFloat32 ? 0x1p-24 : c.dtype == kBFloat16 ? 0x1p-8 : 0x1p-11;
  const char* names[] = {"out", "dq", "dk", "dv"};
  // A sum of n terms of size s, each with relative error u, has an error of about u s sqrt(n). The sum of squares is
  // n s^2.
  for (size_t i = 0; i < want.size(); ++i) {
    const double off = largest(got[i] - want[i]), scale = largest(want[i]);
    EXPECT_LE(off, 16 * u * scale * (c.dtype == kFloat32 ? std::sqrt(static_cast<double>(c.kv_len)) : 1)) << names[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Attention,
    ::testing::Values(AttentionCase{"Small", 1, 2, 1, 96, 96, 64, kBFloat16, true, false},
                      AttentionCase{"SmallF32", 1, 2, 2, 70, 70, 32, kFloat32, true, true},
                      AttentionCase{"Causal", 2, 8, 8, 1024, 1024, 64, kBFloat16, true, false},
                      AttentionCase{"Half", 2, 8, 2, 1000, 1000, 128, kFloat16, true, false},
                      AttentionCase{"Alibi", 1, 8, 8, 777, 777, 64, kBFloat16, true, true},
                      AttentionCase{"Full", 1, 4, 4, 512, 2048, 96, kBFloat16, false, false},
                      AttentionCase{"F32", 1, 4, 4, 512, 512, 64, kFloat32, true, false},
                      AttentionCase{"SmallDocuments", 1, 2, 2, 150, 150, 64, kBFloat16, true, false, true},
                      AttentionCase{"Blocks", 1, 4, 4, 2048, 2048, 64, kBFloat16, true, false, false, true},
                      AttentionCase{"BlocksOf128", 1, 4, 4, 2048, 2048, 128, kBFloat16, true, false, false, true},
                      AttentionCase{"BlocksOfDocuments", 1, 4, 2, 2000, 2000, 128, kFloat16, true, false, true, true},
                      AttentionCase{"BlocksAlibi", 1, 4, 4, 2048, 2048, 128, kBFloat16, true, true, false, true},
                      AttentionCase{"Wide", 1, 2, 2, 1024, 1024, 256, kBFloat16, true, false}),
    [](const auto& info) { return std::string(info.param.name); });

// ---- products of groups of rows ----

class Grouped : public ::testing::TestWithParam<DType> {};

// Rows and both gradients, with more than 64 rows a group, an empty group, and rows outside of all groups. Bound: as
// for attention.
TEST_P(Grouped, ProductsAreThoseOfTheCpu) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  manual_seed(4);
  const int64_t rows = at_most(1200, 140), k = at_most(256, 32), n = at_most(384, 64);
  const Tensor x = randn({rows, k}).to(GetParam()), w = randn({4, k, n}).to(GetParam()), weights = randn({rows, n}),
               offsets =
                   Tensor::from_vector(std::vector<int64_t>{0, rows / 2, rows / 2, rows / 2 + rows / 3, rows - 7}, {5});
  auto call = [&](Device device, DType dtype) {
    std::vector<Tensor> in{x.to(dtype).to(device).requires_grad(), w.to(dtype).to(device).requires_grad()};
    std::vector<Tensor> out{grouped_matmul(in[0], in[1], offsets.to(device))};
    for (const Tensor& g : grad(sum(out[0].to(kFloat32) * weights.to(device)), in)) out.push_back(g);
    for (Tensor& t : out) t = t.to(Device::cpu()).to(kFloat32);
    return out;
  };
  const std::vector<Tensor> want = call(Device::cpu(), kFloat32), got = call(Device::cuda(), GetParam());
  const double u = GetParam() == kBFloat16 ? 0x1p-8 : 0x1p-11;
  const char* names[] = {"out", "dx", "dw"};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_LE(largest(got[i] - want[i]), 16 * u * largest(want[i])) << names[i];
}

INSTANTIATE_TEST_SUITE_P(, Grouped, ::testing::Values(kBFloat16, kFloat16),
                         [](const auto& info) { return std::string(to_string_view(info.param)); });

}  // namespace
}  // namespace weft::testing
