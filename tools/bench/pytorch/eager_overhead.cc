// The rows of ../eager_overhead.cc with libtorch: one JSON object of nanoseconds per call.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

bool first = true;

template <class F>
void loop(const char* name, F&& body) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  int calls = 1000;
  for (int r = 0; r < 10; ++r) {
    auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) body();
    double s = std::chrono::duration<double>(Clock::now() - begin).count();
    if (r) times.push_back(s / calls * 1e9);
    if (!r) calls = std::max(1000, static_cast<int>(calls * 0.02 / s));
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  std::printf("%s\"%s\": %.1f", first ? "{" : ", ", name, times[times.size() / 2]);
  first = false;
}

torch::Tensor chain(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b) {
  auto h = torch::tanh(torch::matmul(x, w) + b);
  return ((torch::matmul(h, w) + b - x) * h).sum();
}

int main() {
  torch::manual_seed(0);
  auto a = torch::randn({16}), b = torch::randn({16}), s = torch::randn({}), t = torch::randn({});
  auto m = torch::randn({8, 8}), q = torch::randn({16, 16}), x = torch::randn({4, 8}), w = torch::randn({8, 8}),
       bias = torch::randn({8});
  auto ar = a.clone().requires_grad_();
  {
    torch::NoGradGuard guard;
    loop("add_16", [&] { auto r = a + b; });
    loop("add_16_number", [&] { auto r = a + 1.0; });
    loop("add_0d", [&] { auto r = s + t; });
    loop("exp_16", [&] { auto r = torch::exp(a); });
    loop("sum_16", [&] { auto r = a.sum(); });
    loop("add_8x8_broadcast", [&] { auto r = m + bias; });
    loop("transpose", [&] { auto r = m.transpose(0, 1); });
    loop("reshape", [&] { auto r = m.reshape({64}); });
    loop("slice", [&] { auto r = m.slice(0, 2, 6); });
    loop("unsqueeze", [&] { auto r = m.unsqueeze(0); });
    loop("matmul_8x8", [&] { auto r = torch::matmul(m, m); });
    loop("matmul_16x16", [&] { auto r = torch::matmul(q, q); });
    loop("chain_forward", [&] { auto r = chain(x, w, bias); });
  }
  loop("add_16_recording", [&] { auto r = ar + b; });
  auto wr = w.clone().requires_grad_(), br = bias.clone().requires_grad_();
  loop("chain_forward_backward", [&] { auto g = torch::autograd::grad({chain(x, wr, br)}, {wr, br}); });
  std::printf("}\n");
}
