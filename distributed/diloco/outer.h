// The outer optimiser of DiLoCo: its times, its fragments, and its arithmetic, without cells and without replicas.
//
// Each replica makes its own training steps. After every H / P of them, the replicas exchange one of P fragments of
// their parameters, so each parameter is exchanged once in H steps. Exchange x of fragment x mod P, by element and in
// the order of the replicas:
//
//   d = anchor - parameter      after step begins_after(x), on each replica
//   D = sum w d / sum w         w: the tokens that a replica has trained in d
//   m = mu m + D;  anchor = anchor - lr (D + mu m)
//   parameter = alpha parameter + (1 - alpha) anchor      after step ends_after(x)
//
// If the delay is H / P or more, several exchanges are under way. They end in their order, each before the next
// exchange of its fragment begins. If one begins and another one ends after the same step, it begins first.
//
// All arithmetic is f32 (Real in tests: f64), so that all replicas have the same bits.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "distributed/diloco/wire.h"

namespace weft::dist {

struct OuterOptions {
  int64_t every = 100;    // H: steps between two exchanges of a parameter
  int64_t fragments = 1;  // P: divides H
  int64_t delay = 0;      // steps from the begin of an exchange to its use; below H
  int64_t steps = 0;      // steps of the run, a multiple of H; the last exchanges end there
  double lr = 0.7;
  double momentum = 0.9;
  double alpha = 0;  // the share of its own parameters that a replica keeps
  OuterWire wire = OuterWire::kF32;

  /// Throws InvalidArgument, naming the field.
  void check() const;
  /// All fields but steps as one text, which replicas compare.
  std::string text() const;
  int64_t between() const { return every / fragments; }
  int64_t exchanges() const { return steps / between(); }
  int64_t begins_after(int64_t x) const { return (x + 1) * between(); }
  /// Also for x = -1: 0, where the first exchange's steps begin.
  int64_t ends_after(int64_t x) const { return x < 0 ? 0 : std::min(begins_after(x) + delay, steps); }
  int64_t fragment(int64_t x) const { return x % fragments; }
  /// The steps since the fragment's exchange before x.
  int64_t steps_in(int64_t x) const { return begins_after(x) - (x < fragments ? 0 : begins_after(x - fragments)); }
  /// The bytes that a replica sends to others for each step, by the closed form.
  double bytes_per_step(int64_t values, int64_t replicas) const;
};

/// A range of the values of one part.
struct FragmentPiece {
  size_t part = 0;
  int64_t begin = 0, count = 0;
  bool operator==(const FragmentPiece&) const = default;
};

/// Divides parts of these sizes into fragments. The values of all parts, one after the other, are cut into blocks of
/// one size; fragment p has the blocks p, p + P, p + 2 P and so on. So fragments are equal to one block, and each has
/// values from all depths of a model.
std::vector<std::vector<FragmentPiece>> fragments_of(std::span<const int64_t> sizes, int64_t fragments);

/// sum += weight d
template <class Real>
void add_weighted(std::span<Real> sum, std::span<const Real> d, int64_t weight) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<Real>(weight) * d[i];
}
/// sum /= total; without weight, the sum is 0.
template <class Real>
void divide(std::span<Real> sum, int64_t total) {
  for (Real& s : sum) s = total > 0 ? s / static_cast<Real>(total) : Real(0);
}
/// Moves a range of the anchors. `sum` is D.
template <class Real>
void move_anchor(const OuterOptions& o, std::span<const Real> sum, Real* anchor, Real* momentum) {
  const auto lr = static_cast<Real>(o.lr), mu = static_cast<Real>(o.momentum);
  for (size_t i = 0; i < sum.size(); ++i) {
    momentum[i] = mu * momentum[i] + sum[i];
    anchor[i] -= lr * (sum[i] + mu * momentum[i]);
  }
}
/// Moves a range of the parameters of a replica to the anchors.
template <class Real>
void move_parameter(const OuterOptions& o, std::span<const Real> anchor, Real* parameter) {
  const auto alpha = static_cast<Real>(o.alpha);
  for (size_t i = 0; i < anchor.size(); ++i) parameter[i] = alpha * parameter[i] + (Real(1) - alpha) * anchor[i];
}

}  // namespace weft::dist
