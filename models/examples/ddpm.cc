// Denoising diffusion (Ho et al. 2020) of points in the plane: two half circles that interlock.
//   ./bazelw run //models/examples:ddpm
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "weft.h"

ABSL_FLAG(int, steps, 6000, "optimiser steps");
ABSL_FLAG(uint64_t, seed, 0, "seed of the points, the initial weights and the samples");

using namespace weft;

namespace {

constexpr int64_t kTimes = 100, kHidden = 128;

/// n points of the two moons, about in [-1.5, 1.5].
Tensor two_moons(int64_t n) {
  const Tensor angle = rand({n}) * M_PI, lower = randint(0, 2, {n}).to(kFloat32), sign = 1 - 2 * lower;
  const Tensor points = stack({sign * cos(angle) + lower - 0.5, sign * sin(angle) + 0.5 * lower - 0.25}, 1);
  return points + 0.05 * randn({n, 2});
}

/// Predicts the noise in points x [N, 2] at times t [N].
struct Denoiser : nn::Module {
  nn::Embedding time;
  nn::Linear in;
  nn::Sequential rest;
  Denoiser()
      : time(kTimes, kHidden),
        in(2, kHidden),
        rest(nn::SiLU(), nn::Linear(kHidden, kHidden), nn::SiLU(), nn::Linear(kHidden, kHidden), nn::SiLU(),
             nn::Linear(kHidden, 2)) {
    register_module("time", time);
    register_module("in", in);
    register_module("rest", rest);
  }
  Tensor operator()(const Tensor& x, const Tensor& t) const { return rest(in(x) + time(t)); }
};

/// Mean distance of each point to the nearest other point.
double distance(const Tensor& from, const Tensor& to) { return cdist(from, to).amin({1}).mean().item(); }

/// Points as text: 24 lines of 64 characters.
void print_points(const Tensor& points) {
  std::vector<std::string> lines(24, std::string(64, ' '));
  for (const Tensor& p : points.unbind()) {
    const double x = p[0].item(), y = p[1].item();
    const auto column = static_cast<int64_t>((x + 2) * 16), row = static_cast<int64_t>((1.2 - y) * 10);
    if (row >= 0 && row < 24 && column >= 0 && column < 64) lines[row][column] = '*';
  }
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  manual_seed(seed);
  data::DataLoader loader(data::TensorDataset(two_moons(20000)), {.batch_size = 500, .shuffle = true, .seed = seed});
  // Noise of variance beta is added at each time; alpha is the share of the signal's variance that is left.
  const Tensor beta = linspace(1e-3, 0.12, kTimes), alpha = cumprod(1 - beta, 0);

  Denoiser model;
  const int steps = absl::GetFlag(FLAGS_steps);
  optim::AdamW opt(model.parameters(), {.lr = 2e-3});
  optim::Scheduler schedule(opt, optim::CosineAnnealingLR{.base = 2e-3, .t_max = std::max(steps, 1)});
  auto train_step = compile([&](Tensor x) {
    const Tensor t = randint(0, kTimes, {x.size(0)}), noise = randn_like(x), a = alpha[t].unsqueeze(1);
    Tensor loss = mse_loss(model(sqrt(a) * x + sqrt(1 - a) * noise, t), noise);
    opt.minimize(loss);
    return loss;
  });
  auto denoise = compile([&](Tensor x, Tensor t) {  // from time t to t - 1
    NoGrad guard;
    const Tensor b = beta[t], mean = (x - b / sqrt(1 - alpha[t]) * model(x, t.expand({x.size(0)}))) / sqrt(1 - b);
    return mean + where(t > 0, sqrt(b), 0.0) * randn_like(x);
  });
  auto sample = [&](int64_t n) {
    Tensor x = randn({n, 2});
    for (int64_t t = kTimes - 1; t >= 0; --t) x = denoise(x, t);
    return x;
  };

  const Tensor moons = two_moons(2000);
  std::printf(" step    loss  distance of samples to the moons\n");
  for (int i = 0; i < steps;) {
    for (const auto& [x] : loader) {
      const Tensor loss = train_step(x);
      schedule.step();
      if (++i % 1000 == 0 || i == 1) std::printf("%5d  %6.4f  %.3f\n", i, loss.item(), distance(sample(1000), moons));
      if (i == steps) break;
    }
  }
  const Tensor points = sample(1000), more = two_moons(1000);
  print_points(points);
  std::printf("distance of samples to the moons: %.3f, of the moons to samples: %.3f; of fresh points: %.3f, %.3f\n",
              distance(points, moons), distance(moons, points), distance(more, moons), distance(moons, more));
}
