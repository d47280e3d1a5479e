// What only a GPU can show: ops, attention and training steps on it, against references and the CPU. Tests named Small
// also run under NVIDIA's sanitizer. Without a GPU all is skipped, with the reason (exit code 77 under check.sh).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "framework/cuda/driver_api.h"
#include "framework/cuda/gpu.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "ops/all_ops.h"
#include "ops/testing/cases.h"
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

class SmallOps : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(SmallOps, MatchTheReference) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  int64_t ran = 0, without = 0;
  for (const Case& c : cases_of(*GetParam())) {
    SCOPED_TRACE(c.label);
    if (c.in.empty()) continue;
    std::vector<Tensor> in, got;
    for (const Tensor& t : c.in) in.push_back(t.to(Device::cuda()));
    try {
      for (const Tensor& t : run(c, in)) got.push_back(t.to(Device::cpu()));
    } catch (const Error& e) {
      if (e.code() != Code::kUnavailable) throw;
      ++without;
      continue;
    }
    ++ran;
    EXPECT_TRUE(matches_reference(c, c.in, got));
  }
  RecordProperty("ran", static_cast<int>(ran));
  RecordProperty("without", static_cast<int>(without));
}

INSTANTIATE_TEST_SUITE_P(All, SmallOps, ::testing::ValuesIn(ops_of_gpus()),
                         [](const auto& info) { return std::string(info.param->name); });

// ---- attention, at sizes that take many blocks ----

struct AttentionCase {
  const char* name;
  int64_t batch, heads, kv_heads, q_len, kv_len, dim;
  DType dtype;
  bool causal, alibi;
};

class Attention : public ::testing::TestWithParam<AttentionCase> {};

double largest(const Tensor& t) { return amax(t.to(kFloat64).abs()).item<double>(); }

// Against the CPU in f32, whose operands are those of the 16-bit call: a result may be off by the roundings of the
// products' operands (p rounded once, q k^T exact) and its own.
TEST_P(Attention, IsThatOfTheCpu) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  const AttentionCase& c = GetParam();
  manual_seed(3);
  auto operand = [&](int64_t heads, int64_t length) { return randn({c.batch, heads, length, c.dim}).to(c.dtype); };
  const Tensor q = operand(c.heads, c.q_len), k = operand(c.kv_heads, c.kv_len), v = operand(c.kv_heads, c.kv_len),
               weights = randn({c.batch, c.heads, c.q_len, c.dim});
  auto call = [&](Device device, DType dtype) {
    const FlexAttentionOptions options{
        .score_mod = c.alibi ? attention::alibi(c.heads) : ScoreMod(),
        .mask_mod = c.causal ? attention::causal().shift(c.kv_len - c.q_len, 0) : MaskMod(),
        .enable_gqa = c.heads != c.kv_heads};
    std::vector<Tensor> in{q.to(dtype).to(device), k.to(dtype).to(device), v.to(dtype).to(device)};
    for (Tensor& t : in) t.requires_grad();
    const Tensor y = flex_attention(in[0], in[1], in[2], options);
    std::vector<Tensor> out{y};
    for (const Tensor& g : grad(sum(y.to(kFloat32) * weights.to(device)), in)) out.push_back(g);
    for (Tensor& t : out) t = t.to(Device::cpu()).to(kFloat32);
    return out;
  };
  const std::vector<Tensor> want = call(Device::cpu(), kFloat32), got = call(Device::cuda(), c.dtype);
  const double u = c.dtype == kFloat32 ? 0x1p-24 : c.dtype == kBFloat16 ? 0x1p-9 : 0x1p-12;
  const char* names[] = {"out", "dq", "dk", "dv"};
  // Sums of n terms of size s, each off by u, are off by about u s sqrt(n); n s^2 is the square of what is summed.
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
                      AttentionCase{"F32", 1, 4, 4, 512, 512, 64, kFloat32, true, false}),
    [](const auto& info) { return std::string(info.param.name); });

// ---- training ----

struct Losses {
  std::vector<double> values;
  CompileStats stats;
};

Losses train(const nn::ModelFamily& family, Device device, std::optional<DType> dtype, int steps, bool small,
             const CompileOptions& options = {}) {
  manual_seed(1);
  nn::ConfigMap config = family.preset(family.default_preset);
  const int64_t length = small ? 32 : 128;
  const nn::ConfigMap tiny{{"vocab", "256"}, {"context", cat(length)}, {"layers", "2"}, {"heads", "4"}, {"dim", "128"}};
  for (const auto& [field, text] : tiny) config[field] = text;
  const auto model = family.make(config);
  model->to(device);
  model->set_compute_dtype(dtype);
  optim::AdamW opt(model->parameters(), {.lr = 1e-3});
  auto step = compile(
      [&](Tensor x, Tensor y) {
        const nn::LossOut out = model->loss(x, y);
        auto [grads, norm] = optim::clip_grad_norm(grad(out.loss, opt.parameters()), 1.0);
        commit_if(logical_and(isfinite(out.loss), isfinite(norm)));
        opt.step(grads);
        model->update_balance(out.expert_counts);
        return out.loss;
      },
      options);
  Losses r;
  for (int i = 0; i < steps; ++i) {
    manual_seed(100 + static_cast<uint64_t>(i % 4));  // four batches, learned by heart
    const Tensor text = randint(0, 256, {8, length + 1}).to(device);
    r.values.push_back(step(text.slice(1, 0, length), text.slice(1, 1, length + 1)).item<double>());
  }
  r.stats = step.stats();
  return r;
}

class Train : public ::testing::TestWithParam<const char*> {};

const nn::ModelFamily& family_of(std::string_view name) {
  return name == "gpt" ? gpt::family() : name == "llama" ? llama::family() : moe::family();
}

// Products' sums differ in their last bits, and training makes differences grow: in f32 the first steps agree to about
// sqrt(steps) roundings of a loss, in bf16 to those of its products; after 50 steps both have learned as much.
TEST_P(Train, FiftyStepsAsOnTheCpu) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  for (const auto& [dtype, first, last] :
       {std::tuple<std::optional<DType>, double, double>{{}, 1e-5, 0.05}, {kBFloat16, 0x1p-8, 0.1}}) {
    SCOPED_TRACE(dtype ? "bf16" : "f32");
    const Losses want = train(family_of(GetParam()), Device::cpu(), dtype, 50, false),
                 got = train(family_of(GetParam()), Device::cuda(), dtype, 50, false);
    for (size_t i = 0; i < 50; ++i) {
      const double bound = want.values[i] * (first + (last - first) * static_cast<double>(i) / 50);
      EXPECT_NEAR(got.values[i], want.values[i], bound) << "step " << i;
      std::printf("%s %s step %zu: cpu %.6f gpu %.6f\n", GetParam(), dtype ? "bf16" : "f32", i, want.values[i],
                  got.values[i]);
    }
    EXPECT_LT(got.values.back(), 0.9 * got.values.front());
    EXPECT_EQ(got.stats.measured_peak_bytes, got.stats.planned_peak_bytes);
  }
}

class SmallTrain : public ::testing::TestWithParam<const char*> {};

TEST_P(SmallTrain, ReplayedIsQueued) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  const Losses queued = train(family_of(GetParam()), Device::cuda(), kBFloat16, 4, true, {.cuda_graph = false}),
               replayed = train(family_of(GetParam()), Device::cuda(), kBFloat16, 4, true);
  EXPECT_EQ(queued.values, replayed.values);
}

INSTANTIATE_TEST_SUITE_P(, Train, ::testing::Values("gpt", "llama", "moe"));
INSTANTIATE_TEST_SUITE_P(, SmallTrain, ::testing::Values("gpt", "llama", "moe"));

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const auto& cuda = weft::cuda::availability(); !cuda.ok && std::getenv("WEFT_GPU_CHECK")) {
    std::fprintf(stderr, "skipped: %s\n", cuda.why.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
