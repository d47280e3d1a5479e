// LossBand: where the losses of a training run lie that differs from the CPU's only by roundings, for tests.
//
// Two sound runs of one model differ by their local errors (sums in another order; with 16-bit values, how often a
// chain is rounded), which training then amplifies. The band takes both from runs on the CPU: R runs of the same
// arithmetic of which every step sees all parameters multiplied by 1 + a z, z uniform in [-1, 1) and drawn anew for
// each element and step. That moves a product's result as much as its own rounding may (a below), renews every rounding
// behind it, and training carries it on through the gradients exactly as it does with the errors of a device.
//
// Why a = u sqrt(n / 2) for f32: summed one after another, n terms of size t round partial sums of size t sqrt(j), each
// by up to u: the variance is n^2 / 2 t^2 u^2 / 3. Weights off by a move the result by n t^2 a^2 / 3. Any other order
// has smaller partial sums. n is the longest sum of the model: its tokens (gradients of weights), hidden sizes or
// vocabulary. Why a = u sqrt(4) for 16 bits: between two products a value is rounded at most four times (product, bias,
// activation, gate or residual), by another device perhaps not at all; sums are in f32, whose errors are far smaller.
//
// At each step the R losses have mean m and standard deviation s. A further loss of their (normal) distribution lies
// within t s sqrt(1 + 1/R) of m but for a share p of all cases, where t is Student's quantile of R - 1 degrees of
// freedom at p / 2. p is what the whole check may err by (1e-3), shared by its steps, models and dtypes (Bonferroni).
// What the mean over n tokens' own f32 sum may be off by, u m sqrt(n / 9), joins s.
#pragma once
#include <vector>

#include "models/testing/train_steps.h"

namespace weft::testing {

/// t with P(|T| > t) = p for Student's T with an even number of degrees of freedom.
double student_quantile(int even_degrees, double p);

struct LossBand {
  std::vector<double> center, half_width;  // by step
  /// max over steps of |loss - center| / half_width: at most 1 inside the band.
  double worst(const std::vector<double>& losses) const;
};

struct BandOptions {
  int steps = 50;
  int runs = 0;         // R, odd (an even number of degrees of freedom); 0: 9 in f32, 17 in 16 bits
  double error = 1e-3;  // chance that a sound device fails any of `checks` bands
  int checks = 6;       // three models in two dtypes
};

/// The text of step i: one of four, which are learned by heart.
Tensor band_text(const TrainCase& c, const TrainHow& how, int i);

/// Losses of that many steps on these texts; `noise`: a above, 0 for the run itself.
std::vector<double> band_losses(const TrainCase& c, const TrainHow& how, int steps, double noise = 0,
                                uint64_t seed = 0);

/// What band_losses does around each step; either may be empty.
struct AroundStep {
  std::function<void(int step, const std::vector<Parameter>&)> before, after;
};
std::vector<double> band_losses(const TrainCase& c, const TrainHow& how, int steps, const AroundStep& around);

/// a for this model.
double band_noise(const TrainCase& c, const TrainHow& how);

LossBand loss_band(const TrainCase& c, const TrainHow& how, const BandOptions& options = {});

}  // namespace weft::testing
