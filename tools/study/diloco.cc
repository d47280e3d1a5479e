#include "tools/study/diloco.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "compiler/cost/collective_seconds.h"

namespace weft::study {

double exchange_bytes(const Outer& o) {
  return bus_factor(Collective::kAllReduce, o.replicas) * o.parameters * o.bytes_each;
}
double bytes_a_step(const Outer& o) { return exchange_bytes(o) / o.steps; }
double burst_bytes(const Outer& o) { return exchange_bytes(o) / o.fragments; }

double exchange_seconds(const Outer& o, const Network& n) { return burst_bytes(o) / n.bandwidth + n.latency; }

double segment_compute(const Outer& o, const StepTime& s) { return o.steps / o.fragments * s.mean; }

bool has_closed_form(const Outer& o, const StepTime& s) { return s.jitter == 0 || o.overlap == 0; }

double utilisation(const Outer& o, const Network& n, const StepTime& s) {
  const double compute = segment_compute(o, s),
               slowest = s.jitter > 0 ? mean_of_largest(o.replicas) * s.jitter * std::sqrt(o.steps / o.fragments) : 0,
               exposed = std::max(0.0, exchange_seconds(o, n) - o.overlap * s.mean);
  return compute / (compute + slowest + exposed);
}

double bandwidth_for(double utilisation, const Outer& o, double latency, double step_seconds) {
  const double exposed = o.steps / o.fragments * step_seconds * (1 / utilisation - 1),
               time = exposed + o.overlap * step_seconds - latency;
  return time > 0 ? burst_bytes(o) / time : std::numeric_limits<double>::infinity();
}

double mean_of_largest(double n) {
  // The integral of x d(P(x)^n), by parts: 1 - P^n above 0 minus P^n below 0, with P the normal distribution.
  constexpr double kEnd = 12, kStep = 1e-3;
  double sum = 0;
  for (double x = kStep / 2; x < kEnd; x += kStep) {
    const double above = 0.5 * std::erfc(x * M_SQRT1_2);  // 1 - P(x) = P(-x)
    sum += -std::expm1(n * std::log1p(-above)) - std::pow(above, n);
  }
  return sum * kStep;
}

TimeEstimate simulate_segment(const Outer& o, const Network& n, const StepTime& s, int64_t samples,
                              std::mt19937_64& random) {
  const size_t replicas = s.jitter > 0 ? static_cast<size_t>(o.replicas) : 1;
  const double steps = o.steps / o.fragments, exchange = exchange_seconds(o, n);
  std::normal_distribution<double> normal;
  const auto compute = [&](double count) {  // time of `count` steps
    return count * s.mean + (s.jitter > 0 && count > 0 ? s.jitter * std::sqrt(count) * normal(random) : 0);
  };
  std::vector<double> at(replicas);  // end of each replica's segment
  for (double& t : at) t = compute(steps);
  constexpr int kBatch = 20;  // overlap makes a segment depend on the previous one; batches hardly depend
  return estimate(samples, [&] {
    const double from = *std::max_element(at.begin(), at.end());
    for (int i = 0; i < kBatch; ++i) {
      const double done = *std::max_element(at.begin(), at.end()) + exchange;
      for (double& t : at) t = std::max(t + compute(o.overlap), done) + compute(steps - o.overlap);
    }
    return (*std::max_element(at.begin(), at.end()) - from) / kBatch;
  });
}

}  // namespace weft::study
