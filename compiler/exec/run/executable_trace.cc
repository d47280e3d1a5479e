// The timed replays of an Executable, and their reports to traces and to WEFT_DEBUG.
#include <algorithm>

#include "compiler/exec/run/executable.h"
#include "compiler/exec/run/trace.h"
#include "framework/base/clock.h"

namespace weft::internal {

void Executable::run_timed() {
  int64_t device = std::max(now_ns(), device_ns_);
  begin_launch(0);
  replay_->run_timed([&](size_t i, double us) {
    launch_us_[i] = launch_us_[i] > 0 ? std::min(launch_us_[i], us) : us;
    if (limits_.synchronous) {
      report(i, begin_ns_, now_ns());
      begin_launch(i + 1);
    } else {
      const int64_t begin = device;
      report(i, begin, device += static_cast<int64_t>(us * 1e3));
    }
  });
  device_ns_ = device;
  if (!traced_) return;
  const int64_t end = now_ns();
  record({.name = "arena", .begin_ns = end, .end_ns = end, .rank = traced_thread.rank, .kind = TraceEvent::kArena});
}

void Executable::describe_launches() {
  const std::vector<int64_t> live = live_by_launch(plan_);
  for (size_t t = 0; t < plan_.launches.size(); ++t) {
    const Launch& l = plan_.launches[t];
    const Node& n = plan_.graph->node(l.node);
    descriptions_.push_back({.name = intern(name_of(l)),
                             .scope = n.scope,
                             .phase = l.phase,
                             .line = n.line,
                             .bytes = live[t],
                             .kind = TraceEvent::kLaunch,
                             .on_device = !limits_.synchronous});
  }
}

void Executable::begin_launch(size_t t) {
  if (traced_ && t < descriptions_.size()) traced_thread.doing = descriptions_[t].name;
  begin_ns_ = now_ns();
}

void Executable::report(size_t t, int64_t begin_ns, int64_t end_ns) const {
  if (traced_) {
    TraceEvent event = descriptions_[t];
    event.rank = traced_thread.rank;
    event.begin_ns = begin_ns;
    event.end_ns = end_ns;
    record(event);
  }
  if (!debug_) return;
  double bytes = 0;
  const StepCall& c = calls_[t];
  for (const auto& list : {c.in, c.out})
    for (const StridedView& v : list) bytes += static_cast<double>(v.nbytes());
  const Launch& l = plan_.launches[t];
  print_launch(name_of(l), c.node->scope, static_cast<double>(end_ns - begin_ns) * 1e-3, bytes,
               cost_of(l, *plan_.graph).flops);
}

void Executable::report_failure(size_t t) const {
  const Launch& l = plan_.launches[t];
  const Node& n = plan_.graph->node(l.node);
  if (debug_) print_failed_launch(name_of(l), n.line, n.scope);
  if (!traced_) return;
  TraceEvent event = descriptions_[t];
  event.rank = traced_thread.rank;
  event.end_ns = now_ns();
  event.begin_ns = limits_.synchronous ? begin_ns_ : event.end_ns;
  event.on_device = false;
  event.failed = true;
  record(event);
  try {
    flush_trace();  // the process may not reach its end
  } catch (const Error& e) {
    warn(e.what());
  }
}

}  // namespace weft::internal
