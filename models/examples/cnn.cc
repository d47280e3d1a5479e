// A convolutional net with batch norm (LeCun et al. 1998, Ioffe and Szegedy 2015) that classifies pictures of digits.
// The digits are generated: 28 x 28 pixels, ten classes, as in MNIST.
//   ./bazelw run //models/examples:cnn
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "models/examples/digits.h"

ABSL_FLAG(int, steps, 300, "optimiser steps");
ABSL_FLAG(uint64_t, seed, 0, "seed of the initial weights and the order of the pictures");

using namespace weft;

namespace {

struct Cnn : nn::Module {
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d norm1, norm2;
  nn::MaxPool2d pool;
  nn::Dropout drop;
  nn::Linear head;
  Cnn()
      : conv1(1, 16, 3, {.padding = 1}),
        conv2(16, 32, 3, {.padding = 1}),
        norm1(16),
        norm2(32),
        pool(2),
        drop(0.2),
        head(32 * 7 * 7, 10) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("pool", pool);
    register_module("drop", drop);
    register_module("head", head);
  }
  /// [N, 1, 28, 28] -> logits [N, 10].
  Tensor operator()(const Tensor& x) const {
    Tensor h = pool(relu(norm1(conv1(x))));
    h = pool(relu(norm2(conv2(h))));
    return head(drop(h.flatten(1)));
  }
};

Tensor count_right(const Tensor& logits, const Tensor& labels) { return eq(logits.argmax(1), labels).sum(); }

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  manual_seed(seed);
  const examples::Digits train = examples::make_digits(6000, 1, 0.15), test = examples::make_digits(1000, 2, 0.15);
  data::DataLoader train_loader(data::TensorDataset(train.images, train.labels),
                                {.batch_size = 64, .shuffle = true, .drop_last = true, .seed = seed});
  data::DataLoader test_loader(data::TensorDataset(test.images, test.labels), {.batch_size = 250});

  Cnn model;
  optim::AdamW opt(model.parameters(), {.lr = 2e-3});
  auto train_step = compile([&](Tensor x, Tensor y) {
    Tensor logits = model(x), loss = cross_entropy(logits, y);
    opt.minimize(loss);
    return std::pair(loss, count_right(logits, y));
  });
  auto test_step = compile([&](Tensor x, Tensor y) {
    NoGrad guard;
    return count_right(model(x), y);
  });
  auto accuracy = [&] {  // share of correct held-out pictures
    model.eval();
    int64_t right = 0;
    for (const auto& [x, y] : test_loader) right += test_step(x, y).item<int64_t>();
    model.train();
    return 100.0 * static_cast<double>(right) / static_cast<double>(test.labels.size(0));
  };

  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf("%lld parameters\n step    loss  of the batch  held out\n",
              static_cast<long long>(model.num_parameters()));
  for (int i = 0; i < steps;) {
    for (const auto& [x, y] : train_loader) {
      const auto [loss, right] = train_step(x, y);
      if (++i % 50 == 0 || i == 1)
        std::printf("%5d  %6.4f        %5.1f %%   %5.1f %%\n", i, loss.item(), 100 * right.item() / 64, accuracy());
      if (i == steps) break;
    }
  }
  std::printf("accuracy on held-out digits: %.1f %%\n", accuracy());
}
