// How far the load of a model is, in lines for a person who waits.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

namespace weft::weights {

/// The first line comes after one second, each further line after twice the time of the line before it, and none at the
/// end: a quick load has no line.
class Progress {
 public:
  /// `what`: the file. `bytes`: the bytes of all cells. Times are in nanoseconds, of any clock.
  Progress(std::string what, int64_t bytes, int64_t now) : what_(std::move(what)), bytes_(bytes), begin_(now) {}
  /// The line for `done` bytes at this time, or "" if none is due.
  std::string line(int64_t done, int64_t now);

 private:
  const std::string what_;
  const int64_t bytes_, begin_;
  int64_t next_ = 1'000'000'000;  // nanoseconds after begin_
};

}  // namespace weft::weights
