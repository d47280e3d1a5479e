// A mean over seeded samples with its error.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>

namespace weft::study {

/// The mean of independent samples and its standard error. There is no estimate without samples.
struct TimeEstimate {
  double mean = 0, error = 0;
  int64_t samples = 0;
};

/// Estimates the mean of `samples` calls of sample().
inline TimeEstimate estimate(int64_t samples, const std::function<double()>& sample) {
  double mean = 0, squares = 0;
  for (int64_t i = 1; i <= samples; ++i) {  // Welford 1962: no difference of large sums
    const double x = sample(), off = x - mean;
    mean += off / static_cast<double>(i);
    squares += off * (x - mean);
  }
  const double n = static_cast<double>(samples);
  return {mean, samples > 1 ? std::sqrt(squares / (n - 1) / n) : 0, samples};
}

}  // namespace weft::study
