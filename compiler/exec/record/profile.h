// profile(step, 10): the events of every thread and rank during ten steps, compiled or eager.
#pragma once
#include <optional>
#include <source_location>
#include <string>

#include "compiler/exec/record/rank_times.h"
#include "framework/base/tracer.h"

namespace weft {

/// The trace of some steps.
class Profile {
 public:
  Profile(internal::Trace trace, int64_t steps) : trace_(std::move(trace)), steps_(steps) {}

  const std::vector<TraceEvent>& events() const { return trace_.events; }
  const internal::Trace& trace() const { return trace_; }
  int64_t steps() const { return steps_; }
  /// Writes Chrome's JSON for ui.perfetto.dev and chrome://tracing. Relative paths start at the current folder, under
  /// `bazel run` at your shell's current folder. Throws Unavailable if the file cannot be written.
  void save(const std::string& path) const;
  RankTimes times() const { return rank_times(trace_.events); }
  /// Compute, communication, waiting and idle time of each rank, the critical rank, and how many events were lost.
  std::string summary() const;

 private:
  internal::Trace trace_;
  int64_t steps_ = 0;
};

namespace internal {

/// Traces everything from its construction to stop() or its destruction. Throws InvalidArgument for less than one step,
/// FailedPrecondition inside a compiled function and while another profile runs in this process.
class ProfileWindow {
 public:
  explicit ProfileWindow(int64_t steps, SourceLine line = {});
  ~ProfileWindow();
  ProfileWindow(const ProfileWindow&) = delete;
  Profile stop(int64_t steps);

 private:
  bool open_ = true;
};

}  // namespace internal

/// Calls step() `steps` times and records the events of all threads of the process. Call the step once before, or the
/// profile shows how it is captured and compiled. If step() throws, so does profile().
template <class F>
Profile profile(F&& step, int steps, std::source_location loc = std::source_location::current()) {
  internal::ProfileWindow window(steps, loc);
  for (int i = 0; i < steps; ++i) {
    const internal::TraceScope one(TraceEvent::kStep, "profiled step", loc);
    step();
  }
  return window.stop(steps);
}

}  // namespace weft
