// Chooses how a rank writes pieces that other ranks read: through its caches, or around them. Writes through the caches
// are faster between cores that share a last-level cache. Other cores read a line from the writer's cache at a small
// part of the memory's rate (tools/bench/README.md, "Shared memory"), so writes around the caches are faster there.
// Ranks can move to other cores at any time, so both ways are measured. Results do not depend on the choice.
#pragma once
#include <algorithm>
#include <cstdint>

namespace weft::dist::shared {

class PieceWrites {
 public:
  /// Whether the next collective writes around the caches: chooses the faster way, and retries the other one now and
  /// then.
  bool next() {
    const bool faster = seconds_[1] < kGain * seconds_[0];
    const int64_t n = count_++;
    if (n < kFirst) return n % 2 == 1;
    return n % kRetry == 0 ? !faster : faster;
  }
  /// Records the copy time, in seconds per byte, of a collective that wrote this way.
  void took(bool around, double seconds) {
    double& least = seconds_[around];
    least = least == 0 ? seconds : std::min(kForget * least, seconds);
  }

 private:
  static constexpr int64_t kFirst = 8, kRetry = 128;  // the first collectives alternate: their memory may be new
  static constexpr double kGain =
      0.9;  // limit of the time ratio: writes around the caches must gain more, since cached data helps later work
  static constexpr double kForget =
      1.05;                     // lets a measurement from before a change of cores expire after some collectives
  double seconds_[2] = {0, 0};  // roughly the least time of recent collectives; 0: not measured
  int64_t count_ = 0;
};

}  // namespace weft::dist::shared
