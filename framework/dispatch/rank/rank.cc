#include "framework/dispatch/rank/rank.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "framework/base/tracer.h"
#include "framework/ir/graph.h"

namespace weft {
namespace {

// A rank is a thread.
thread_local RankContext* current_rank = nullptr;

// A view that the request leaves out has no address and no dims.
int64_t bytes_moved(const CommRequest& r) {
  switch (r.kind) {
    case Collective::kBarrier:
      return 0;
    case Collective::kSend:
      return r.in.nbytes();
    case Collective::kRecv:
      return r.out.nbytes();
    case Collective::kAllToAll:  // the larger side may have more space than data
      return std::min(r.in.nbytes(), r.out.nbytes());
    default:
      return std::max(r.in.nbytes(), r.out.nbytes());
  }
}

// The sum of an operand's 64-bit words, which any one changed bit changes. It runs at the speed of memory. `counts`: of
// an all-to-all, whose operand may have unused rows at its end.
uint64_t sum_of_words(const StridedView& v, std::span<const int64_t> counts) {
  const auto* p = static_cast<const char*>(v.data);
  auto n = static_cast<size_t>(v.nbytes());
  if (!counts.empty() && n > 0)
    n = std::min(n, n / static_cast<size_t>(v.shape[0]) * std::accumulate(counts.begin(), counts.end(), size_t{0}));
  uint64_t sums[4] = {}, words[4] = {};
  for (; n >= sizeof words; n -= sizeof words, p += sizeof words) {
    std::memcpy(words, p, sizeof words);
    for (int i = 0; i < 4; ++i) sums[i] += words[i];
  }
  std::memset(words, 0, sizeof words);
  if (n > 0) std::memcpy(words, p, n);
  uint64_t sum = 0;
  for (int i = 0; i < 4; ++i) sum += sums[i] + words[i];
  return sum;
}

// The event of a rank that starts a collective, waits for it, or both.
class CollectiveTrace {
 public:
  CollectiveTrace(Collective kind, bool starts, bool waits)
      : scope_(TraceEvent::kCollective, to_string_view(kind).data()) {
    if (TraceEvent* e = scope_.event()) e->starts = starts, e->waits = waits;
  }
  void of(const Ref<Work>& work, const std::string& axes) {
    if (TraceEvent* e = scope_.event()) e->flow = work ? work->number() : 0, e->scope = intern(axes);
  }
  void moves(int64_t bytes) {
    if (TraceEvent* e = scope_.event()) e->bytes = bytes;
  }

 private:
  internal::TraceScope scope_;
};

}  // namespace

std::string CollectiveRecord::to_string() const { return str_cat(kind, " ", axes, " ", dtype, " ", bytes, " bytes"); }

RankContext::~RankContext() = default;

RankContext* RankContext::current() { return current_rank; }

RankContext& RankContext::require(const char* op) {
  WEFT_CHECK_AS(kFailedPrecondition, current_rank, op,
                ": this thread is not a rank; call it inside dist::run or World::run, which give each rank its thread");
  return *current_rank;
}

void RankContext::clear_statistics() {
  records_.clear();
  for (auto& [key, total] : totals_) total = {};  // works in progress point here
}

WaitedSeconds RankContext::waited() const {
  WaitedSeconds sum;
  for (const auto& [key, total] : totals_) sum.all += total.wait_seconds, sum.late += total.late_seconds;
  return sum;
}

void RankContext::begin_step(uint16_t plan) {
  if (!flight) return;
  step_.plan = plan;
  step_.run = flight->new_run();
  step_.position = 0;
  flight->phase(flight::Event::kPhaseBegin, flight::Phase::kStep, step_.plan, step_.run, 0, ++calls_[plan]);
}

void RankContext::end_step() {
  if (!flight) return;
  flight->phase(flight::Event::kPhaseEnd, flight::Phase::kStep, step_.plan, step_.run, step_.position);
  step_ = {};
}

RankContext::UnderWay RankContext::begin(const std::string& axes, const CommRequest& r) {
  const int64_t bytes = bytes_moved(r);
  if (recording)
    records_.push_back({r.kind, axes, r.kind == Collective::kRecv ? r.out.dtype : r.in.dtype, bytes, r.site});
  if (operand_sums && r.in.data && r.in.contiguous() && (r.send_counts.empty() || r.in_dim == 0))
    operand_sums->push_back(sum_of_words(r.in, r.send_counts));
  Totals::value_type& total = *totals_.try_emplace({r.kind, axes}).first;
  ++total.second.count;
  total.second.bytes += bytes;
  return fault ? launch_faulty(total, r) : launch(total, r, bytes);
}

// The record comes first: the first use of a communicator waits for other ranks.
RankContext::UnderWay RankContext::launch(Totals::value_type& total, const CommRequest& r, int64_t bytes) {
  flight::Record started;
  const std::string& axes = total.first.second;
  if (flight) {
    if (total.second.communicator < 0) total.second.communicator = flight->communicator(axes);
    started = flight->start(static_cast<uint16_t>(total.second.communicator), r, bytes, step_);
    if (step_.run) ++step_.position;
  }
  return {communicator(axes).start(r), &total, started};
}

RankContext::UnderWay RankContext::launch_faulty(Totals::value_type& total, const CommRequest& request) {
  UnderWay last{{}, &total, {}};
  for (const auto& [axes, r] : fault(total.first.second, request)) {
    wait(last);
    last = launch(*totals_.try_emplace({r.kind, axes}).first, r, bytes_moved(r));
  }
  return last;
}

void RankContext::wait(const UnderWay& w) {
  if (!w.work) return;
  const auto start = std::chrono::steady_clock::now();
  const auto record = [&](flight::Event event, std::chrono::steady_clock::time_point time, uint8_t outcome) {
    if (!flight) return;
    flight::Record r = w.started;
    r.event = event;
    r.time = std::chrono::nanoseconds(time.time_since_epoch()).count();
    r.outcome = outcome;
    flight->write(r);
  };
  record(flight::Event::kWait, start, 0);
  const std::optional<Error> error = w.work->wait(start + timeout);
  const auto end = std::chrono::steady_clock::now();
  record(flight::Event::kEnd, end, error ? static_cast<uint8_t>(error->code()) : uint8_t{0});
  const auto seconds = [&](std::chrono::steady_clock::time_point to) {
    return std::chrono::duration<double>(to - start).count();
  };
  w.total->second.wait_seconds += seconds(end);
  if (!error) {
    w.total->second.late_seconds += seconds(std::clamp(w.work->all_started(), start, end));
    return;
  }
  if (w.started.run == 0) throw *error;
  throw Error(error->code(), str_cat(error->what(), "; collective ", w.started.position + 1, " of call ",
                                     calls_[w.started.plan], " of compiled step ", w.started.plan));
}

void RankContext::run(const std::string& axes, const CommRequest& request) {
  CollectiveTrace trace(request.kind, true, true);
  const UnderWay w = begin(axes, request);
  trace.of(w.work, axes);
  trace.moves(bytes_moved(request));
  wait(w);
}

void RankContext::agree() {
  CollectiveTrace trace(Collective::kBarrier, true, true);
  Totals::value_type& total = *totals_.try_emplace({Collective::kBarrier, "world"}).first;
  ++total.second.count;
  const UnderWay w = fault ? launch_faulty(total, {}) : launch(total, {}, 0);
  trace.of(w.work, "world");
  wait(w);
}

void RankContext::start(const std::string& axes, const CommRequest& r) {
  WEFT_CHECK_AS(kFailedPrecondition, !works_.contains(r.site), r.kind, ": a collective is already in progress at site ",
                r.site, "; need a collective_wait first");
  CollectiveTrace trace(r.kind, true, false);
  const UnderWay& w = works_.emplace(r.site, begin(axes, r)).first->second;
  trace.of(w.work, axes);
  trace.moves(bytes_moved(r));
}

void RankContext::finish(uint64_t site) {
  const auto it = works_.find(site);
  WEFT_CHECK_AS(kFailedPrecondition, it != works_.end(), "collective_wait: no collective is in progress at site ",
                site);
  const UnderWay w = std::move(it->second);
  works_.erase(it);
  CollectiveTrace trace(w.total->first.first, false, true);
  trace.of(w.work, w.total->first.second);
  wait(w);
}

ScopedRank::ScopedRank(RankContext& context) : previous_(current_rank) {
  current_rank = &context;
  internal::traced_thread.rank = context.rank();
}
ScopedRank::~ScopedRank() {
  current_rank = previous_;
  internal::traced_thread.rank = previous_ ? previous_->rank() : -1;
}

}  // namespace weft
