#include "compiler/exec/record/profile.h"

#include <cstdio>
#include <utility>

#include "compiler/exec/run/trace.h"
#include "framework/base/error.h"
#include "framework/base/switches.h"
#include "framework/dispatch/state/state.h"

namespace weft {

void Profile::save(const std::string& path) const { save_trace(trace_, internal::in_working_folder(path), "profile"); }

std::string Profile::summary() const {
  const RankTimes t = times();
  char line[120];
  std::snprintf(line, sizeof line, "%lld %s in %.3f ms, traced; tracing slows steps down\n",
                static_cast<long long>(steps_), steps_ == 1 ? "step" : "steps", static_cast<double>(t.total) * 1e-6);
  std::string text = line + t.to_string(steps_);
  if (trace_.lost > 0)
    text += str_cat("lost: ", trace_.lost, " events, the oldest; each thread keeps ", internal::kTraceRing,
                    ", so profile fewer steps\n");
  return text;
}

namespace internal {

ProfileWindow::ProfileWindow(int64_t steps, SourceLine line) {
  const LineScope here(line);
  WEFT_CHECK(steps >= 1, "profile: got ", steps, " steps; need 1 or more");
  WEFT_CHECK_AS(kFailedPrecondition, !is_capturing(),
                "profile: called inside a compiled function; need a call outside of it");
  WEFT_CHECK_AS(kFailedPrecondition, open_trace(TraceWindow::kProfile, kAllKinds),
                "profile: another profile is running in this process; need one at a time");
}

ProfileWindow::~ProfileWindow() {
  if (open_) close_trace(TraceWindow::kProfile);
}

Profile ProfileWindow::stop(int64_t steps) {
  Profile profile(collect_trace(TraceWindow::kProfile), steps);
  close_trace(TraceWindow::kProfile);
  open_ = false;
  return profile;
}

}  // namespace internal
}  // namespace weft
