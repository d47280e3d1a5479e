// DiLoCo (Douillard et al. 2023): replicas train alone for H steps, then exchange the mean of their changes. Its
// communication and the utilisation of replicas, as closed forms and as a seeded simulation. Data parallelism is the
// case H = 1.
#pragma once
#include <cstdint>
#include <random>

#include "tools/study/estimate.h"

namespace weft::study {

struct Outer {
  double parameters = 1e9;
  double replicas = 8;
  double bytes_each = 4;  // bytes of one parameter in the exchange
  double steps = 100;     // H: steps of a replica between two exchanges of the same parameter
  double fragments = 1;   // number of parts, exchanged steps / fragments steps apart (streaming)
  double overlap = 0;     // steps that a replica makes while a part is exchanged; at most steps / fragments
};

/// Bytes that a replica sends for one exchange of all parameters: 2 (R - 1) / R N b, an all-reduce.
double exchange_bytes(const Outer& o);
/// exchange_bytes() per step.
double bytes_a_step(const Outer& o);
/// Bytes of the exchange of one part: the load of the link at one time.
double burst_bytes(const Outer& o);

struct Network {
  double bandwidth = 125e6;  // bytes per second of a replica's link
  double latency = 0;        // seconds of an exchange, in addition to its bytes
};

/// Seconds of the exchange of one part.
double exchange_seconds(const Outer& o, const Network& n);

/// Steps of a replica take `mean` seconds with a standard deviation of `jitter`; each is normal and independent.
struct StepTime {
  double mean = 1, jitter = 0;
};

/// Whether the closed form below holds: jitter or overlap is 0.
bool has_closed_form(const Outer& o, const StepTime& s);
/// The share of time in which a replica computes. Without overlap, each part waits for the slowest replica.
double utilisation(const Outer& o, const Network& n, const StepTime& s);
/// The bandwidth for a utilisation, without jitter; infinite if none is enough.
double bandwidth_for(double utilisation, const Outer& o, double latency, double step_seconds);
/// The mean of the largest of `n` standard normal numbers.
double mean_of_largest(double n);

/// Estimates the seconds between two parts; utilisation = segment_compute() / this.
TimeEstimate simulate_segment(const Outer& o, const Network& n, const StepTime& s, int64_t samples,
                              std::mt19937_64& random);
/// Mean seconds of computing between two parts.
double segment_compute(const Outer& o, const StepTime& s);

}  // namespace weft::study
