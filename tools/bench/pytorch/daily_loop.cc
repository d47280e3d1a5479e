// The program of ../daily_loop/main.cc with libtorch.
#include <torch/torch.h>

#include <chrono>
#include <iostream>

struct Mlp : torch::nn::Module {
  torch::nn::Linear a{nullptr}, b{nullptr};
  Mlp() { a = register_module("a", torch::nn::Linear(64, 256)), b = register_module("b", torch::nn::Linear(256, 64)); }
  torch::Tensor forward(torch::Tensor x) { return b(torch::gelu(a(x))); }
};
int main() {
  Mlp m;
  torch::optim::AdamW opt(m.parameters(), 1e-3);
  auto x = torch::randn({32, 64});
  for (int i = 0; i < 20; i++) {
    auto l = (m.forward(x) - x).pow(2).mean();
    opt.zero_grad();
    l.backward();
    opt.step();
    if (i % 10 == 0) std::cout << "loss " << l.item<float>() << std::endl;
  }
  auto s = torch::randn({16}), t = torch::randn({16});
  torch::NoGradGuard guard;
  for (int k = 0; k < 5; k++) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 100000; i++) auto r = s + t;
    std::cout << "add " << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() * 10 << " us"
              << std::endl;
  }
}
