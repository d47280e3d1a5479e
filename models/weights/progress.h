// How far the load of a model is, in lines for a person who waits.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

namespace weft::weights {

/// The times of lines about something long: `first` after the begin, and then after twice the time of each line. Times
/// are in nanoseconds, of any clock.
class LineTimes {
 public:
  LineTimes(int64_t begin, int64_t first) : begin_(begin), next_(first) {}
  /// Whether a line is due. Then the next one follows after twice the time.
  bool due(int64_t now) {
    const int64_t elapsed = now - begin_;
    if (elapsed < next_) return false;
    while (next_ <= elapsed) next_ *= 2;
    return true;
  }
  /// The time of the next line.
  int64_t next() const { return begin_ + next_; }

 private:
  int64_t begin_;
  int64_t next_;  // after begin_
};

/// The first line comes after one second, each further line after twice the time of the line before it, and none at the
/// end: a quick load has no line.
class Progress {
 public:
  /// `what`: the file. `bytes`: the bytes of all cells. Times are in nanoseconds, of any clock.
  Progress(std::string what, int64_t bytes, int64_t now)
      : what_(std::move(what)), bytes_(bytes), begin_(now), times_(now, 1'000'000'000) {}
  /// The line for `done` bytes at this time, or "" if none is due.
  std::string line(int64_t done, int64_t now);

 private:
  const std::string what_;
  const int64_t bytes_, begin_;
  LineTimes times_;
};

}  // namespace weft::weights
