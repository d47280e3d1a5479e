#include "models/nn/transformer/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::nn {
namespace {

double d(int64_t n) { return static_cast<double>(n); }

// The share of each frequency that yarn keeps: 1 for pairs that turn beta_fast times and more within the trained
// context, 0 for beta_slow and less, linear in the pair's number in between. The ends are whole pairs.
std::vector<double> kept_by_yarn(int64_t head_dim, const RotaryOptions& o) {
  const auto pair_of = [&](double turns) {
    return d(head_dim) * ::std::log(d(o.original_context) / (turns * 2 * ::std::numbers::pi)) /
           (2 * ::std::log(o.theta));
  };
  const double low = ::std::max(::std::floor(pair_of(o.beta_fast)), 0.0);
  double high = ::std::min(::std::ceil(pair_of(o.beta_slow)), d(head_dim - 1));
  if (low == high) high += 0.001;
  std::vector<double> kept;
  for (int64_t i = 0; i < head_dim / 2; ++i) kept.push_back(1 - ::std::clamp((d(i) - low) / (high - low), 0.0, 1.0));
  return kept;
}

}  // namespace

RotaryFrequencies rotary_frequencies(int64_t head_dim, const RotaryOptions& o) {
  WEFT_CHECK(head_dim > 0 && head_dim % 2 == 0, "rotary_tables: head_dim is ", head_dim, "; need an even number");
  const bool linear = o.type == "linear", llama3 = o.type == "llama3", yarn = o.type == "yarn";
  WEFT_CHECK(linear || llama3 || yarn || o.type == "default", "rotary_tables: type is '", o.type,
             "'; need default, linear, llama3 or yarn");
  RotaryFrequencies r;
  const std::vector<double> kept = yarn && o.factor != 1 ? kept_by_yarn(head_dim, o) : std::vector<double>();
  for (int64_t i = 0; i < head_dim; i += 2) {
    double f = ::std::pow(o.theta, -d(i) / d(head_dim)), keep = 1;
    if (linear) keep = 0;
    if (llama3) {
      // Keep short waves, scale waves longer than the trained context, and interpolate in between.
      const double turns = d(o.original_context) * f / (2 * ::std::numbers::pi);
      keep = ::std::clamp((turns - o.low_freq_factor) / (o.high_freq_factor - o.low_freq_factor), 0.0, 1.0);
    }
    if (!kept.empty()) keep = kept[static_cast<size_t>(i / 2)];
    if (o.factor != 1) f = keep * f + (1 - keep) * f / o.factor;
    WEFT_CHECK(::std::isfinite(f), "rotary_tables: type ", o.type, " with theta ", o.theta, " and factor ", o.factor,
               " gives pair ", i / 2, " no finite frequency; need other settings");
    r.radians.push_back(f);
  }
  if (yarn) r.scale = o.attention_factor > 0 ? o.attention_factor : o.factor > 1 ? 0.1 * ::std::log(o.factor) + 1 : 1;
  return r;
}

RopeTables rotary_tables(const Arg& arg, int64_t head_dim, const RotaryOptions& options) {
  internal::LineScope line(arg.line());
  const Tensor& positions = internal::tensor_of(arg, "rotary_tables");
  const RotaryFrequencies f = rotary_frequencies(head_dim, options);
  const std::vector<float> radians(f.radians.begin(), f.radians.end());
  const Tensor angle =
      unsqueeze(positions.to(kFloat32), -1) * Tensor::from_vector(radians, {head_dim / 2}).to(positions.device());
  if (f.scale == 1) return {cos(angle), sin(angle)};
  return {cos(angle) * f.scale, sin(angle) * f.scale};
}

}  // namespace weft::nn
