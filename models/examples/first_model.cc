#include <iostream>

#include "weft.h"
using namespace weft;

struct Mlp : nn::Module {
  nn::Linear up, down;
  Mlp(int64_t d, int64_t h) : up(d, h), down(h, 1) { register_module("up", up), register_module("down", down); }
  Tensor operator()(const Tensor& x) const { return down(gelu(up(x))); }
};

int main() {
  manual_seed(0);
  Mlp model(2, 64);
  optim::AdamW opt(model.parameters(), {.lr = 1e-2});
  auto step = compile([&](Tensor x, Tensor y) {  // forward, backward and optimiser become one graph
    Tensor loss = mse_loss(model(x), y);
    opt.minimize(loss);
    return loss;
  });
  for (int i = 0; i <= 500; ++i) {
    Tensor x = rand({256, 2}) * 2 - 1, y = sin(3 * x.slice(1, 0, 1)) * x.slice(1, 1, 2);
    Tensor loss = step(x, y);
    if (i % 100 == 0) std::cout << "step " << i << "  loss " << loss.item<float>() << "\n";
  }
  std::cout << step.stats().to_string() << "\n";
}
