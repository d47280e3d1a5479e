// How a rank writes pieces that other ranks read: into its caches, or around them. Cores that share a last-level cache
// are faster with the first. If they do not share one, a line that another core has written is read at a small part of
// the memory's rate (tools/bench/README.md, "Shared memory"), and the second is faster. Which cores run the ranks can
// change at any time, so both ways are measured. The results do not depend on it.
#pragma once
#include <algorithm>
#include <cstdint>

namespace weft::dist::shared {

class PieceWrites {
 public:
  /// Whether the next collective writes around the caches: the way that took less time, now and then the other one.
  bool next() {
    const bool faster = seconds_[1] < kGain * seconds_[0];
    const int64_t n = count_++;
    if (n < kFirst) return n % 2 == 1;
    return n % kRetry == 0 ? !faster : faster;
  }
  /// A collective that wrote so has copied for that many seconds per byte.
  void took(bool around, double seconds) {
    double& least = seconds_[around];
    least = least == 0 ? seconds : std::min(kForget * least, seconds);
  }

 private:
  static constexpr int64_t kFirst = 8, kRetry = 128;  // the first collectives alternate: their memory may be new
  static constexpr double kGain = 0.9;  // around the caches must be that much faster: other work finds its data in them
  static constexpr double kForget = 1.05;  // a value from before the cores changed is replaced after some collectives
  double seconds_[2] = {0, 0};             // about the least of the last collectives; 0: not measured
  int64_t count_ = 0;
};

}  // namespace weft::dist::shared
