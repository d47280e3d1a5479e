// The results of a benchmark: rows of numbers, each with an optional bound and goal, printed as a table and
// written as JSON.
#pragma once
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace weft::bench {

inline constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// One measured number. Less is better unless the unit is a rate ("GB/s").
struct BenchRow {
  std::string name;
  double value = kNone;
  std::string unit;
  double bound = kNone;  // the machine's bound, in the same unit
  double goal = kNone;   // Weft's goal, in the same unit
};

class Report {
 public:
  /// `name`: the benchmark's name. Facts about the machine and Weft are added.
  explicit Report(std::string name) : name_(std::move(name)) {}
  /// A fact about the run: configuration, dtype, shapes.
  void fact(std::string name, std::string text) { facts_.emplace_back(std::move(name), std::move(text)); }
  void add(BenchRow row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }

  /// The table, without unused columns.
  std::string to_text() const;
  /// {"benchmark", "machine": {...}, "facts": {...}, "rows": [{"name", "value", "unit", "bound"?, "goal"?}]}.
  std::string to_json() const;
  /// Prints the table and writes the JSON to `json_file` unless it is empty.
  void finish(const std::string& json_file) const;

 private:
  std::string name_;
  std::vector<std::pair<std::string, std::string>> facts_;
  std::vector<BenchRow> rows_;
};

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The middle value; the upper middle value if there are two.
double median(std::vector<double> values);

/// Median seconds of one call of `body` over `repetitions`; each repeats the call for about `at_least` seconds.
template <class F>
double median_seconds(F&& body, int repetitions = 7, double at_least = 0.02) {
  int64_t calls = 1;
  for (;; calls *= 2) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) body();
    if (const double s = seconds_since(begin); s >= at_least / 2) {
      if (s < at_least) calls *= 2;
      break;
    }
  }
  std::vector<double> times;
  for (int r = 0; r < repetitions; ++r) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) body();
    times.push_back(seconds_since(begin) / static_cast<double>(calls));
  }
  return median(std::move(times));
}

/// Seconds since the system started this process. The kernel reports the start to 0.01 s.
double process_age();

/// The process's peak resident memory, in bytes.
double peak_resident_bytes();

}  // namespace weft::bench
