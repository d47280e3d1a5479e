// eager_overhead: the time of one eager call besides its arithmetic, on tensors so small that arithmetic is negligible.
// pytorch/eager_overhead.cc measures the same rows.
#include <functional>

#include "absl/flags/flag.h"
#include "tools/bench/benchmark.h"
#include "weft.h"

ABSL_FLAG(int32_t, repetitions, 9, "repetitions of each measurement; the median is reported");

namespace {

using namespace weft;

// Two layers and a simple loss: 8 ops forward and about 16 backward.
Tensor chain(const Tensor& x, const Tensor& w, const Tensor& b) {
  const Tensor h = tanh(matmul(x, w) + b);
  return ((matmul(h, w) + b - x) * h).sum();
}

void run(bench::Report& report) {
  manual_seed(0);
  const int repetitions = absl::GetFlag(FLAGS_repetitions);
  auto row = [&](const char* name, double goal_ns, const std::function<void(int)>& calls, int count) {
    // The loop over `count` calls is inside, so that std::function costs nothing.
    const double s = bench::median_seconds([&] { calls(count); }, repetitions) / count;
    report.add({name, s * 1e9, "ns", bench::kNone, goal_ns});
  };
  auto loop = [&](const char* name, double goal_ns, auto&& body) {
    row(
        name, goal_ns,
        [&](int n) {
          for (int i = 0; i < n; ++i) body();
        },
        1000);
  };

  const Tensor a = randn({16}), b = randn({16}), s = randn({}), t = randn({}), m = randn({8, 8}), q = randn({16, 16});
  const Tensor ar = a.requires_grad(), x = randn({4, 8}), w = randn({8, 8}), bias = randn({8});
  {
    NoGrad guard;
    loop("add_16", 200, [&] { Tensor r = a + b; });
    loop("add_16_number", bench::kNone, [&] { Tensor r = a + 1.0; });
    loop("add_0d", bench::kNone, [&] { Tensor r = s + t; });
    loop("exp_16", bench::kNone, [&] { Tensor r = exp(a); });
    loop("sum_16", bench::kNone, [&] { Tensor r = a.sum(); });
    loop("add_8x8_broadcast", bench::kNone, [&] { Tensor r = m + bias; });
    loop("transpose", bench::kNone, [&] { Tensor r = m.transpose(0, 1); });
    loop("reshape", bench::kNone, [&] { Tensor r = m.reshape({64}); });
    loop("slice", bench::kNone, [&] { Tensor r = m.slice(0, 2, 6); });
    loop("unsqueeze", bench::kNone, [&] { Tensor r = m.unsqueeze(0); });
    loop("matmul_8x8", bench::kNone, [&] { Tensor r = matmul(m, m); });
    loop("matmul_16x16", bench::kNone, [&] { Tensor r = matmul(q, q); });
    loop("chain_forward", bench::kNone, [&] { Tensor r = chain(x, w, bias); });
  }
  loop("add_16_recording", bench::kNone, [&] { Tensor r = ar + b; });
  const Tensor wr = w.requires_grad(), br = bias.requires_grad();
  loop("chain_forward_backward", bench::kNone, [&] { auto g = grad(chain(x, wr, br), {wr, br}); });
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmark(argc, argv, "eager_overhead", "Nanoseconds of one eager call on small tensors.", run);
}
