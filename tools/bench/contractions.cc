// contractions: f(a[i, k], b[k, j]) reduced over k, with f and a reduction other than multiply and add, beside a matrix
// product of the same size. Shows the cost of doing without matrix units and a hand-tuned kernel.
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "framework/cli/cli.h"
#include "tools/bench/benchmark.h"
#include "weft.h"

ABSL_FLAG(int32_t, repetitions, 5, "repetitions of each case; the median is reported");
ABSL_FLAG(int32_t, most, 512, "rows and columns of the largest matrices");

namespace weft::bench {
namespace {

using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;
using BenchStep = std::function<std::vector<Tensor>(const Tensor&, const Tensor&, const Tensor&)>;

struct NamedContraction {
  const char* name;
  Binary fn;
};

// In the order of the table. The product comes first, because the others are compared with it.
std::vector<NamedContraction> kinds() {
  return {{"product", [](const Tensor& a, const Tensor& b) { return matmul(a, b); }},
          {"max-plus", [](const Tensor& a, const Tensor& b) { return amax(a.unsqueeze(-1) + b.unsqueeze(0), {-2}); }},
          {"L1 distance",
           [](const Tensor& a, const Tensor& b) { return sum(abs(a.unsqueeze(-1) - b.unsqueeze(0)), {-2}); }},
          {"log-space product",
           [](const Tensor& a, const Tensor& b) { return logsumexp(a.unsqueeze(-1) + b.unsqueeze(0), {-2}); }}};
}

BenchStep step_of(const Binary& fn, bool backward) {
  return [=](const Tensor& a, const Tensor& b, const Tensor& w) {
    const Tensor out = fn(a, b);
    return backward ? grad((out * w).sum(), {a, b}) : std::vector<Tensor>{out};
  };
}

void run(Report& report) {
  const int most = absl::GetFlag(FLAGS_most);
  if (most < 1 || most > 4096) usage_error("--most is " + std::to_string(most) + "; need 1 to 4096");
  manual_seed(0);
  report.fact("bound", "the product of the same size");
  for (const bool backward : {false, true})
    for (int n = std::min(64, most); n <= most; n *= 2) {
      const Tensor a = randn({n, n}).requires_grad(), b = randn({n, n}).requires_grad(), w = randn({n, n});
      std::vector<Compiled<BenchStep>> steps;
      for (const NamedContraction& kind : kinds()) steps.push_back(compile(step_of(kind.fn, backward)));
      std::vector<std::vector<double>> times(steps.size());
      for (const auto& step : steps) (void)step(a, b, w);
      for (int r = 0; r < absl::GetFlag(FLAGS_repetitions); ++r)
        for (size_t i = 0; i < steps.size(); ++i)
          times[i].push_back(median_seconds([&] { (void)steps[i](a, b, w); }, 1, 0.005));
      const double product = median(times[0]) * 1e3;
      for (size_t i = 0; i < steps.size(); ++i)
        report.add({std::string(kinds()[i].name) + " " + std::to_string(n) + (backward ? " forward and backward" : ""),
                    median(times[i]) * 1e3, "ms", product});
    }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "contractions",
                                    "Times contractions other than matrix products beside a matrix product.",
                                    weft::bench::run);
}
