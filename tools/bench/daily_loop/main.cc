// A user's program: a two-layer model, AdamW, and a loop. ../pytorch/daily_loop.cc does the same with libtorch.
#include <chrono>
#include <iostream>

#include "weft.h"

using namespace weft;
struct Mlp : nn::Module {
  nn::Linear a{64, 256}, b{256, 64};
  Mlp() { register_module("a", a), register_module("b", b); }
  Tensor operator()(const Tensor& x) const { return b(gelu(a(x))); }
};
int main() {
  Mlp m;
  optim::AdamW opt(m.parameters(), {.lr = 1e-3});
  Tensor x = randn({32, 64});
  for (int i = 0; i < 20; i++) {
    Tensor l = (m(x) - x).pow(2).mean();
    opt.step(grad(l, m.parameters()));
    if (i % 10 == 0) std::cout << "loss " << l.item<float>() << std::endl;
  }
  // The time of one eager addition.
  Tensor s = randn({16}), t = randn({16});
  NoGrad guard;
  for (int k = 0; k < 5; k++) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 100000; i++) Tensor r = s + t;
    std::cout << "add " << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() * 10 << " us"
              << std::endl;
  }
}
