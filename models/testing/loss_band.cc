#include "models/testing/loss_band.h"

#include <algorithm>
#include <cmath>

#include "framework/testing/compare.h"

namespace weft::testing {

// Abramowitz and Stegun 26.7.4: with theta = atan(t / sqrt(n)), P(|T| <= t) = sin theta (1 + 1/2 cos^2 + 1 3 / (2 4)
// cos^4 + ... up to cos^(n - 2)).
double student_quantile(int n, double p) {
  WEFT_CHECK(n > 0 && n % 2 == 0 && p > 0 && p < 1, "student_quantile: ", n, " degrees, p ", p,
             "; need an even number, 0 < p < 1");
  auto outside = [&](double t) {
    const double c2 = n / (n + t * t), s = t / std::sqrt(n + t * t);
    // 1 - s (sum of n / 2 terms). All terms sum to 1 / s, so the omitted terms are summed, lest small p cancel.
    double term = 1, rest = 0;
    for (int k = 1; k < n / 2; ++k) term *= (2 * k - 1) / (2.0 * k) * c2;
    for (int k = n / 2; k < 100000 && term > 1e-30; ++k) rest += term *= (2 * k - 1) / (2.0 * k) * c2;
    return s * rest;
  };
  double low = 0, high = 1;
  while (outside(high) > p) high *= 2;
  for (int i = 0; i < 100; ++i) (outside((low + high) / 2) > p ? low : high) = (low + high) / 2;
  return high;
}

double LossBand::worst(const std::vector<double>& losses) const {
  WEFT_CHECK(losses.size() == center.size(), "LossBand: ", losses.size(), " losses; need ", center.size());
  double most = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const double off = std::fabs(losses[i] - center[i]) / half_width[i];
    most = off <= most ? most : off;  // NaN stays
  }
  return most;
}

namespace {

int64_t setting(const TrainCase& c, const TrainHow& how, const std::string& field) {
  nn::ConfigMap config = c.family.preset(c.family.default_preset);
  for (const nn::ConfigMap* changes : {&how.size, &c.changes})
    for (const auto& [name, text] : *changes) config[name] = text;
  return std::stoll(config.at(field));
}

}  // namespace

Tensor band_text(const TrainCase& c, const TrainHow& how, int i) {
  manual_seed(100 + static_cast<uint64_t>(i % 4));
  return randint(0, setting(c, how, "vocab"), {how.batch, setting(c, how, "context") + 1});
}

double band_noise(const TrainCase& c, const TrainHow& how) {
  if (c.dtype && itemsize(*c.dtype) == 2) return unit_roundoff(*c.dtype) * std::sqrt(4.0);
  const int64_t longest =
      std::max({how.batch * setting(c, how, "context"), setting(c, how, "ffn"), setting(c, how, "vocab")});
  return unit_roundoff(kFloat32) * std::sqrt(static_cast<double>(longest) / 2);
}

std::vector<double> band_losses(const TrainCase& c, const TrainHow& how, int steps, const AroundStep& around) {
  TrainSteps training(c, how);
  const std::vector<Parameter> parameters = training.model().parameters();
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    if (around.before) around.before(i, parameters);
    losses.push_back(training.step(band_text(c, how, i)).loss.item<double>());
    if (around.after) around.after(i, parameters);
  }
  return losses;
}

std::vector<double> band_losses(const TrainCase& c, const TrainHow& how, int steps, double noise, uint64_t seed) {
  if (noise == 0) return band_losses(c, how, steps, AroundStep{});
  std::vector<Tensor> moved;
  AroundStep around;
  around.before = [&](int step, const std::vector<Parameter>& parameters) {
    manual_seed(1000 * (seed + 1) + static_cast<uint64_t>(step));
    moved.clear();
    for (const Parameter& p : parameters) {
      const Tensor value = p.value().detach();
      moved.push_back(value * (noise * (2 * rand(p.shape()) - 1)));
      p.set(value + moved.back());
    }
  };
  around.after = [&](int, const std::vector<Parameter>& parameters) {
    for (size_t k = 0; k < moved.size(); ++k) parameters[k].set(parameters[k].value().detach() - moved[k]);
  };
  return band_losses(c, how, steps, around);
}

LossBand loss_band(const TrainCase& c, const TrainHow& how, const BandOptions& o) {
  const int count = o.runs ? o.runs : c.dtype ? 17 : 9;
  const double noise = band_noise(c, how), runs = count;
  const double tokens = static_cast<double>(how.batch * setting(c, how, "context"));
  std::vector<std::vector<double>> all;
  for (int r = 0; r < count; ++r) all.push_back(band_losses(c, how, o.steps, noise, static_cast<uint64_t>(r)));
  const double t = student_quantile(count - 1, o.error / (o.steps * o.checks));
  LossBand band;
  for (int i = 0; i < o.steps; ++i) {
    double mean = 0, squares = 0;
    for (const auto& losses : all) mean += losses[i] / runs;
    for (const auto& losses : all) squares += (losses[i] - mean) * (losses[i] - mean);
    band.center.push_back(mean);
    // A sum of n like terms, one after another, is off by up to u / sqrt(3) in each partial sum j / n.
    const double own = unit_roundoff(kFloat32) * mean * std::sqrt(tokens / 9);
    band.half_width.push_back(t * std::sqrt((squares / (runs - 1) + own * own) * (1 + 1 / runs)));
  }
  return band;
}

}  // namespace weft::testing
