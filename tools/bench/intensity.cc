// intensity: one multiply repeated K times over an array that fits no cache, fused into one kernel and op by op. Memory
// hides the arithmetic up to some K; the roofline determines this K (compiler/cost/roofline.h).
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "compiler/cost/machine/rates.h"
#include "compiler/cost/roofline.h"
#include "framework/cli/cli.h"
#include "tools/bench/benchmark.h"
#include "weft.h"

ABSL_FLAG(int32_t, repetitions, 5, "repetitions of each case; the median is reported");
ABSL_FLAG(int32_t, elements, 32 << 20, "f32 elements of the array");
ABSL_FLAG(int32_t, most, 512, "the largest K");

namespace weft::bench {
namespace {

using UnaryFunction = std::function<Tensor(const Tensor&)>;

double milliseconds(const Tensor& x, int times, bool fused) {
  const UnaryFunction multiply = [times](const Tensor& in) {
    Tensor x = in;
    for (int i = 0; i < times; ++i) x = x * 1.0001;
    return x;
  };
  CompileOptions options;
  if (!fused) options.disable = {"fuse"};
  const Compiled<UnaryFunction> run = compile(multiply, options);
  Tensor result = run(x);
  return 1e3 * median_seconds([&] { result = run(x); }, absl::GetFlag(FLAGS_repetitions), 0);
}

// Where the line through the measured points crosses `level`; kNone if it does not.
double crossing(const std::vector<std::pair<int, double>>& points, double level) {
  for (size_t i = 1; i < points.size(); ++i) {
    const auto [k0, t0] = points[i - 1];
    const auto [k1, t1] = points[i];
    if (t0 <= level && t1 > level) return k0 + (k1 - k0) * (level - t0) / (t1 - t0);
  }
  return kNone;
}

void run(Report& report) {
  const int elements = absl::GetFlag(FLAGS_elements), most = absl::GetFlag(FLAGS_most);
  if (elements < 1) usage_error("--elements is " + std::to_string(elements) + "; need 1 or more");
  if (most < 1 || most > 4096) usage_error("--most is " + std::to_string(most) + "; need 1 to 4096");
  manual_seed(0);
  NoGrad guard;
  const Machine machine = rates_of(Device::cpu());
  const double each = 2 * sizeof(float);
  report.fact("elements", std::to_string(elements));
  report.add({"copy", machine.bytes / 1e9, "GB/s"});
  report.add({"multiplications", machine.flops * 1e-9, "Gop/s"});
  const Tensor x = randn({elements});
  std::vector<std::pair<int, double>> fused;
  for (int k = 1; k <= most; k *= 2) {
    fused.emplace_back(k, milliseconds(x, k, true));
    const double n = elements;
    report.add({"fused " + std::to_string(k), fused.back().second, "ms",
                1e3 * roofline_seconds(machine, {.flops = k * n, .bytes = each * n})});
  }
  for (int k = 1; k <= std::min(most, 64); k *= 2)
    report.add({"unfused " + std::to_string(k), milliseconds(x, k, false), "ms"});
  report.add({"K that doubles the time", crossing(fused, 2 * fused[0].second), "", operations_for(machine, each, 2)});
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "intensity", "Times one multiply repeated K times, fused and op by op.",
                                    weft::bench::run);
}
