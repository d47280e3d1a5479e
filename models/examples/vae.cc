// A variational autoencoder (Kingma and Welling 2013) of pictures of digits. It learns to generate new digits.
//   ./bazelw run //models/examples:vae
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "models/examples/digits.h"

ABSL_FLAG(int, steps, 1500, "optimiser steps");
ABSL_FLAG(uint64_t, seed, 0, "seed of the initial weights, the order of the pictures and the samples");

using namespace weft;
using distributions::Normal;

namespace {

constexpr int64_t kLatent = 12, kHidden = 256, kPixels = examples::kSide * examples::kSide;

struct Vae : nn::Module {
  nn::Sequential encoder, decoder;
  Vae()
      : encoder(nn::Flatten(), nn::Linear(kPixels, kHidden), nn::ReLU(), nn::Linear(kHidden, kHidden), nn::ReLU(),
                nn::Linear(kHidden, 2 * kLatent)),
        decoder(nn::Linear(kLatent, kHidden), nn::ReLU(), nn::Linear(kHidden, kHidden), nn::ReLU(),
                nn::Linear(kHidden, kPixels), nn::Unflatten(1, {1, examples::kSide, examples::kSide})) {
    register_module("encoder", encoder);
    register_module("decoder", decoder);
  }
  /// The distribution of the latent variables of pictures.
  Normal encode(const Tensor& x) const {
    const std::vector<Tensor> h = encoder(x).chunk(2, 1);
    return Normal(h[0], exp(0.5 * h[1]));
  }
};

struct Loss {
  Tensor reconstruction, kl;  // nats per picture; their sum is the negative evidence lower bound
};

Loss loss_of(const Vae& model, const Tensor& x) {
  const Normal q = model.encode(x);
  const Tensor logits = model.decoder(q.rsample());
  const double n = static_cast<double>(x.size(0));
  return {binary_cross_entropy_with_logits(logits, x, "sum") / n, kl_divergence(q, Normal(0.0, 1.0)).sum() / n};
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  manual_seed(seed);
  const Tensor held_out = examples::make_digits(1000, 2, 0).images;
  data::DataLoader loader(data::TensorDataset(examples::make_digits(10000, 1, 0).images),
                          {.batch_size = 100, .shuffle = true, .seed = seed});

  Vae model;
  optim::Adam opt(model.parameters(), {.lr = 1e-3});
  auto train_step = compile([&](Tensor x) {
    Loss loss = loss_of(model, x);
    opt.minimize(loss.reconstruction + loss.kl);
    return loss;
  });
  auto test_step = compile([&](Tensor x) {
    NoGrad guard;
    return loss_of(model, x);
  });
  auto sample = compile([&](Tensor z) {
    NoGrad guard;
    return sigmoid(model.decoder(z));
  });

  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf(" step  reconstruction     KL\n");
  for (int i = 0; i < steps;) {
    for (const auto& [x] : loader) {
      const Loss loss = train_step(x);
      if (++i % 250 == 0 || i == 1) std::printf("%5d  %14.1f  %5.1f\n", i, loss.reconstruction.item(), loss.kl.item());
      if (i == steps) break;
    }
  }
  const Loss loss = test_step(held_out);
  std::printf("digits of the model:\n");
  examples::print_pictures(sample(randn({4, kLatent})));
  std::printf("held-out digits: %.1f nats, of them KL %.1f\n", loss.reconstruction.item() + loss.kl.item(),
              loss.kl.item());
}
