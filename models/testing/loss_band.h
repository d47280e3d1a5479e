// LossBand: the range of losses of a training run that differs from the CPU's run only by roundings, for tests.
//
// Two sound runs of one model differ by their local errors (sums in another order; with 16-bit values, how often a
// chain is rounded), which training then amplifies. The band measures both in R runs on the CPU with the same
// arithmetic, in which each step multiplies all parameters by 1 + a z, z uniform in [-1, 1) and drawn anew for each
// element and step. This noise moves a product's result by up to its own rounding error (a below) and changes every
// later rounding. Training propagates the noise through the gradients exactly like the errors of a device.
//
// Why a = u sqrt(n / 2) for f32: summed one after another, n terms of size t round partial sums of size t sqrt(j), each
// by up to u, so the variance is n^2 / 2 t^2 u^2 / 3. Weights off by a change the result with variance n t^2 a^2 / 3.
// Any other order has smaller partial sums. n is the longest sum of the model: its tokens (gradients of weights),
// hidden sizes or vocabulary. Why a = u sqrt(4) for 16 bits: between two products a value is rounded at most four times
// (product, bias, activation, gate or residual); another device may not round it at all. Sums are in f32, whose errors
// are far smaller.
//
// At each step the R losses have mean m and standard deviation s. A further loss of their (normal) distribution is
// within t s sqrt(1 + 1/R) of m except in a share p of all cases, where t is Student's quantile of R - 1 degrees of
// freedom at p / 2. p is the error chance of the whole check (1e-3), divided by its steps, models and dtypes
// (Bonferroni). The error of the mean over n tokens' own f32 sum, u m sqrt(n / 9), is added to s.
#pragma once
#include <vector>

#include "models/testing/train_steps.h"

namespace weft::testing {

/// t with P(|T| > t) = p for Student's T with an even number of degrees of freedom.
double student_quantile(int even_degrees, double p);

struct LossBand {
  std::vector<double> center, half_width;  // index: step
  /// max over steps of |loss - center| / half_width: at most 1 inside the band.
  double worst(const std::vector<double>& losses) const;
};

struct BandOptions {
  int steps = 50;
  int runs = 0;         // R, odd (an even number of degrees of freedom); 0: 9 in f32, 17 in 16 bits
  double error = 1e-3;  // chance that a sound device fails any of `checks` bands
  int checks = 6;       // three models in two dtypes
};

/// The text of step i: one of four texts, which the model memorises.
Tensor band_text(const TrainCase& c, const TrainHow& how, int i);

/// Losses of `steps` steps on these texts; `noise`: a above, 0 for the run itself.
std::vector<double> band_losses(const TrainCase& c, const TrainHow& how, int steps, double noise = 0,
                                uint64_t seed = 0);

/// Functions that band_losses calls around each step; either may be empty.
struct AroundStep {
  std::function<void(int step, const std::vector<Parameter>&)> before, after;
};
std::vector<double> band_losses(const TrainCase& c, const TrainHow& how, int steps, const AroundStep& around);

/// The noise a for this model.
double band_noise(const TrainCase& c, const TrainHow& how);

LossBand loss_band(const TrainCase& c, const TrainHow& how, const BandOptions& options = {});

}  // namespace weft::testing
