// optim::GradScaler inside steps: the scale follows a plain reference, and a step whose gradients overflow
// changes nothing else; op by op, compiled, on a GPU (whose kernels are the CPU's) and over a mesh,
// across a save and a load.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/targets/cuda/testing/host_kernels_gpu.h"
#include "distributed/launch/compile.h"
#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "weft.h"

namespace weft {
namespace {

const optim::GradScalerOptions kOptions{.init_scale = 1024, .growth_interval = 3};
// Steps whose loss is so large that f16 gradients overflow.
constexpr bool kOverflows[] = {0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0};
constexpr int kSteps = std::size(kOverflows);

// PyTorch's GradScaler on the host.
struct Reference {
  double scale = kOptions.init_scale;
  int64_t good = 0;
  void update(bool ok) {
    if (!ok) {
      scale = std::max(1.0, scale / 2);
      good = 0;
    } else if (++good == kOptions.growth_interval) {
      scale *= 2;
      good = 0;
    }
  }
};

using ScaledStep = std::function<std::pair<Tensor, Tensor>(Tensor, Tensor)>;

// A linear model whose activations are f16.
struct Training {
  explicit Training(Device d, const optim::GradScalerOptions& options = kOptions) : device(d) {
    std::vector<float> v;
    for (int i = 0; i < 32; ++i) v.push_back(static_cast<float>((i * 5) % 13) / 8 - 0.5f);
    w = Parameter(Tensor::from_vector(v, {8, 4}).to(d), "w");
    opt.emplace(std::vector{w}, optim::AdamWOptions{.lr = 1e-2});
    optim::GradScalerOptions o = options;
    o.device = d;
    scaler.emplace(o);
    for (int i = 0; i < 32; ++i) v[i] = static_cast<float>((i * 7) % 11) / 4 - 1;
    x = Tensor::from_vector(v, {4, 8}).to(d);
  }
  std::pair<Tensor, Tensor> step(const Tensor& x, const Tensor& boost) {
    const Tensor y = matmul(x.to(kFloat16), w.value().to(kFloat16));
    const Tensor loss = mean(square(y.to(kFloat32) - 1)) * boost;
    const std::vector<Tensor> grads = scaler->unscale(grad(scaler->scale(loss), std::vector{w}));
    const auto [clipped, norm] = optim::clip_grad_norm(grads, 1.0);
    const Tensor ok = logical_and(isfinite(loss), isfinite(norm));
    if (early) commit_if(ok);  // the scaler does not mind
    scaler->update(ok);
    commit_if(ok);
    opt->step(clipped);
    return {loss, ok};
  }
  ScaledStep direct() {
    return [this](const Tensor& x, const Tensor& boost) { return step(x, boost); };
  }
  Tensor boost(int i) const { return full({}, kOverflows[i] ? 1e6 : 1).to(device); }
  std::vector<float> state() const {
    std::vector<float> all = w.value().to_vector<float>();
    for (const auto& [name, cell] : opt->named_cells())
      for (float v : cell.value().to_vector<float>()) all.push_back(v);
    return all;
  }

  Device device;
  bool early = false;
  Parameter w;
  Tensor x;
  std::optional<optim::AdamW> opt;
  std::optional<optim::GradScaler> scaler;
};

// Follows the reference from step `from` to `to`; returns the state at the end.
template <class S>
std::vector<float> follow(Training& run, const S& step, Reference& want, int from = 0, int to = kSteps) {
  for (int i = from; i < to; ++i) {
    const std::vector<float> before = run.state();
    const auto [loss, ok] = step(run.x, run.boost(i));
    want.update(!kOverflows[i]);
    EXPECT_EQ(ok.template item<bool>(), !kOverflows[i]) << i;
    EXPECT_EQ(run.scaler->get_scale(), want.scale) << i;
    EXPECT_EQ(run.scaler->good_steps.value().template item<int64_t>(), want.good) << i;
    EXPECT_EQ(run.state() == before, kOverflows[i]) << i;
  }
  return run.state();
}

struct GpuLossScale : ::testing::Test {
  GpuLossScale() { set_switch("WEFT_CXX", "none"); }
};

TEST_F(GpuLossScale, GoesTheWayOfTheReference) {
  std::vector<float> eager;
  for (const bool compiled : {false, true})
    for (const bool early : {false, true}) {
      Training run(Device::cpu());
      run.early = early;
      Reference want;
      const std::vector<float> state =
          follow(run, compile(run.direct(), {.enabled = compiled, .numerics = "eager"}), want);
      if (eager.empty()) eager = state;
      EXPECT_EQ(state, eager) << compiled << early;
    }
  internal::HostKernelsGpu gpu;
  for (const bool graph : {false, true}) {
    Training run(Device::cuda());
    Reference want;
    const auto step = compile(run.direct(), {.numerics = "eager", .cuda_graph = graph});
    EXPECT_EQ(follow(run, step, want), eager) << graph;
  }
}

TEST_F(GpuLossScale, OverAMesh) {
  for (const char* mesh : {"dp2", "tp2"}) {
    Training run(Device::cpu());
    Reference want;
    follow(run, dist::compile(run.direct(), {.mesh = dist::Mesh::parse(mesh)}), want);
  }
}

TEST_F(GpuLossScale, OutsideSteps) {
  const optim::GradScaler scaler(kOptions);
  Reference want;
  for (const bool overflow : kOverflows) {
    scaler.update(full({}, !overflow, {.dtype = kBool}));
    want.update(!overflow);
    EXPECT_EQ(scaler.get_scale(), want.scale);
  }
}

TEST_F(GpuLossScale, GoesOnFromASave) {
  Training whole(Device::cpu()), first(Device::cpu()), second(Device::cpu());
  Reference want;
  const std::vector<float> end = follow(whole, compile(whole.direct()), want);
  Reference again;
  follow(first, compile(first.direct()), again, 0, 8);
  second.w.set(first.w.value());
  second.opt->load_state_dict(first.opt->state_dict());
  for (size_t i = 0; i < 2; ++i)
    second.scaler->named_cells()[i].second.set(first.scaler->named_cells()[i].second.value());
  EXPECT_EQ(follow(second, compile(second.direct()), again, 8, kSteps), end);
}

TEST_F(GpuLossScale, StaysBetweenOneAndTheLargestNumber) {
  const optim::GradScaler low({.init_scale = 2}), high({.init_scale = 0x1p126, .growth_interval = 1});
  const Tensor yes = ones({}, {.dtype = kBool}), no = zeros({}, {.dtype = kBool});
  for (int i = 0; i < 4; ++i) {
    low.update(no);
    high.update(yes);
  }
  EXPECT_EQ(low.get_scale(), 1);
  EXPECT_EQ(high.get_scale(), 0x1p127);
}

TEST_F(GpuLossScale, UnscalesIn32Bits) {
  const optim::GradScaler scaler({.init_scale = 0x1p30});
  const Tensor loss = scaler.scale(full({}, 0.5));
  EXPECT_EQ(loss.item<float>(), 0x1p29f);
  const auto g = scaler.unscale({full({2}, 2.0, {.dtype = kFloat16}), Tensor()}, 0.25);
  EXPECT_EQ(g[0].dtype(), kFloat32);
  EXPECT_EQ(g[0].to_vector<float>()[1], 0x1p-31f);
  EXPECT_FALSE(g[1].defined());
}

TEST_F(GpuLossScale, RefusesWhatDoesNotFit) {
  using testing::error_of;
  EXPECT_EQ(error_of([] { optim::GradScaler({.init_scale = 0}); }),
            "GradScaler: init_scale is 0; need a number >= 1 that fits f32");
  EXPECT_EQ(error_of([] { optim::GradScaler({.growth_interval = 0}); }),
            "GradScaler: growth_interval is 0; need at least 1");
  EXPECT_EQ(error_of([] { optim::GradScaler().update(ones({2})); }), "GradScaler: update got f32[2]; need a 0-d bool");
}

}  // namespace
}  // namespace weft
