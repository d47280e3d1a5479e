#include "compiler/exec/record/rank_times.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "framework/base/str_cat.h"

namespace weft {
namespace {

using Spans = std::vector<std::pair<int64_t, int64_t>>;  // (begin, end)

// The length of the union.
int64_t covered(Spans spans) {
  std::sort(spans.begin(), spans.end());
  int64_t length = 0, reached = INT64_MIN;
  for (const auto& [begin, end] : spans) {
    if (end <= reached) continue;
    length += end - std::max(begin, reached);
    reached = end;
  }
  return length;
}

struct Arrival {
  int64_t at = INT64_MIN;
  int32_t rank = -1;
};

bool computes(const TraceEvent& e) { return e.kind == TraceEvent::kLaunch || e.kind == TraceEvent::kOp; }

}  // namespace

RankTimes rank_times(std::span<const TraceEvent> events) {
  RankTimes times;
  if (events.empty()) return times;
  int64_t first = INT64_MAX, end = INT64_MIN;
  bool ranks = false;
  std::map<uint64_t, Arrival> last;  // flow -> the rank that started the collective last
  for (const TraceEvent& e : events) {
    first = std::min(first, e.begin_ns), end = std::max(end, e.end_ns);
    ranks |= e.rank >= 0;
    if (!e.flow || !e.starts) continue;
    Arrival& a = last[e.flow];
    if (e.begin_ns >= a.at) a = {e.begin_ns, e.rank};
  }
  times.total = end - first;

  struct OfRank {
    Spans collectives, waits, all;
    int64_t awaited = 0;
  };
  std::map<int32_t, OfRank> by_rank;
  for (const TraceEvent& e : events) {
    if (ranks && e.rank < 0) continue;
    OfRank& r = by_rank[e.rank];
    const std::pair span(e.begin_ns, e.end_ns);
    if (computes(e)) r.all.push_back(span);
    if (e.kind != TraceEvent::kCollective) continue;
    r.all.push_back(span);
    r.collectives.push_back(span);
    const auto it = last.find(e.flow);
    if (!e.waits || it == last.end() || it->second.rank == e.rank) continue;
    const int64_t until = std::min(it->second.at, e.end_ns);
    if (until <= e.begin_ns) continue;
    r.waits.push_back({e.begin_ns, until});
    by_rank[it->second.rank].awaited += until - e.begin_ns;
  }
  const RankTime* critical = nullptr;
  times.ranks.reserve(by_rank.size());
  for (auto& [rank, of] : by_rank) {
    RankTime t{.rank = rank, .awaited = of.awaited};
    const int64_t busy = covered(std::move(of.all)), collective = covered(std::move(of.collectives));
    t.waiting = covered(std::move(of.waits));
    t.communication = collective - t.waiting;
    t.compute = busy - collective;
    t.idle = times.total - busy;
    times.ranks.push_back(t);
    const auto weight = [](const RankTime& x) { return std::pair(x.awaited, x.compute); };
    if (!critical || weight(times.ranks.back()) > weight(*critical)) critical = &times.ranks.back();
  }
  if (ranks) times.critical = critical->rank;
  return times;
}

std::string RankTimes::to_string(int64_t steps) const {
  const double unit = 1e6 * static_cast<double>(std::max<int64_t>(steps, 1));
  const auto ms = [&](int64_t ns) { return static_cast<double>(ns) / unit; };
  std::string text = "ms a step    compute  communication    waiting       idle\n";
  char line[160];
  for (const RankTime& t : ranks) {
    std::snprintf(line, sizeof line, "%-9s %10.3f     %10.3f %10.3f %10.3f\n",
                  t.rank < 0 ? "program" : str_cat("rank ", t.rank).c_str(), ms(t.compute), ms(t.communication),
                  ms(t.waiting), ms(t.idle));
    text += line;
  }
  for (const RankTime& t : ranks) {
    if (t.rank != critical || critical < 0) continue;
    if (t.awaited > 0) {
      std::snprintf(line, sizeof line, "critical: rank %d; the others together waited %.3f ms a step for it\n", t.rank,
                    ms(t.awaited));
    } else {
      std::snprintf(line, sizeof line, "critical: rank %d, which computes most; no rank waited\n", t.rank);
    }
    text += line;
  }
  return text;
}

}  // namespace weft
