// Steps with many small parameters on the emulated GPU: the captured graph has few launches and gives the CPU's bits.
#include <gtest/gtest.h>

#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "weft.h"

namespace weft {
namespace {

const std::vector<Shape> kShapes = {{64},   {320},  {8, 16}, {40, 32}, {2000},   {5},      {48, 96},
                                    {3000}, {1024}, {768},   {1536},   {64, 64}, {16, 48}, {33}};

std::vector<float> numbers(int64_t n, int seed) {
  std::vector<float> v;
  for (int64_t k = 0; k < n; ++k) v.push_back(static_cast<float>((k * 7 + seed * 5) % 23) / 8 - 1.25f);
  return v;
}

// Gradients are clipped by their norm. `first`: parameters whose gradients depend on other parameters' gradients.
struct Model {
  explicit Model(Device d, bool chained) : device(d) {
    for (size_t i = 0; i < kShapes.size(); ++i) {
      const Shape& s = kShapes[i];
      w.emplace_back(Tensor::from_vector(numbers(s.numel(), static_cast<int>(i)), s).to(d));
      m.emplace_back(Tensor::from_vector(std::vector<float>(s.numel()), s).to(d));
    }
    step = std::make_unique<Compiled<std::function<Tensor(Tensor)>>>(
        std::function<Tensor(Tensor)>([this, chained](Tensor x) { return train(x, chained); }), CompileOptions());
  }
  Tensor train(const Tensor& x, bool chained) {
    NoGrad guard;
    Tensor norm = x * 0.0;
    std::vector<Tensor> g;
    for (size_t i = 0; i < w.size(); ++i) {
      g.push_back(w[i].value() * x);
      const Tensor squares = sum(square(chained ? g.back() + norm : g.back()));
      norm = norm + squares;
    }
    const Tensor scale = 1.0 / (sqrt(norm) + 1.0);
    for (size_t i = 0; i < w.size(); ++i) {
      m[i].set(m[i].value() * 0.9 + g[i] * scale);
      w[i].set(w[i].value() - m[i].value() * 0.1);
    }
    return norm;
  }

  Device device;
  std::vector<Parameter> w;
  std::vector<Buffer> m;
  std::unique_ptr<Compiled<std::function<Tensor(Tensor)>>> step;
};

// The losses and the last parameters. `launches`: of each run.
std::vector<float> run(Device d, bool chained, bool hold, cuda::testing::ScopedEmulatedGpu* gpu = nullptr,
                       std::vector<int64_t>* launches = nullptr) {
  Model model(d, chained);
  std::vector<float> all;
  std::vector<Tensor> held;
  for (int i = 0; i < 6; ++i) {
    const Tensor x = Tensor::from_vector({0.5f + static_cast<float>(i) / 8}, {1}).to(d).reshape({});
    // A parameter that the caller holds gets new storage, and its old one stays: addresses change from run to run.
    held.clear();
    if (hold && i % 2 == 1)
      for (size_t k = 0; k < model.w.size(); k += 3) held.push_back(model.w[k].value());
    const int64_t before = gpu ? gpu->driver().calls("cuLaunchKernel") : 0;
    const Tensor y = model.step->operator()(x);
    if (gpu) launches->push_back(gpu->driver().calls("cuLaunchKernel") - before);
    all.push_back(y.to(Device::cpu()).item<float>());
  }
  for (const Parameter& w : model.w)
    for (float f : w.value().to(Device::cpu()).to_vector<float>()) all.push_back(f);
  return all;
}

TEST(Batch, OfManyParametersGivesTheCpusBits) {
  for (const bool chained : {false, true})
    for (const bool hold : {false, true}) {
      const std::vector<float> want = run(Device::cpu(), chained, hold);
      cuda::testing::ScopedEmulatedGpu gpu;
      std::vector<int64_t> launches;
      EXPECT_EQ(run(Device::cuda(), chained, hold, &gpu, &launches), want) << chained << hold;
      // The first run queues every operation, the second captures.
      EXPECT_GE(launches[0], 20) << chained << hold;
      EXPECT_LE(launches[1], chained ? launches[0] - 8 : launches[0] - 10) << chained << hold;
    }
}

}  // namespace
}  // namespace weft
