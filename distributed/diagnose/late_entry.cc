#include "distributed/diagnose/late_entry.h"

#include <algorithm>
#include <map>

namespace weft::dist::diagnose {

using flight::Event;
using flight::Record;

// The time that a rank waited in collectives between two moments.
static int64_t waiting_time(const RankTrace& t, int64_t begin, int64_t end) {
  int64_t sum = 0, since = -1;
  for (const Record& r : t.records) {
    if (r.event == Event::kWait) since = r.time;
    if (r.event != Event::kEnd || since < 0) continue;
    sum += std::max<int64_t>(0, std::min(end, r.time) - std::max(begin, since));
    since = -1;
  }
  return sum;
}

LateEntry latest_entry(const TracedJob& job, const Groups& groups, int64_t time) {
  LateEntry worst;
  for (const RankTrace& t : job.ranks)
    for (const Record& r : t.records) {
      if (r.event != Event::kStart || is_transfer(r) || r.time > time) continue;
      const std::vector<int> members = groups.members(t, r);
      if (members.empty() || members[0] != t.rank || members.size() < 2) continue;  // once for each group
      std::vector<std::pair<int64_t, int>> starts;
      for (int rank : members) {
        const auto start = rank == t.rank ? std::optional(r.time) : groups.start_of(rank, t, r);
        if (start && *start > 0 && *start <= time) starts.emplace_back(*start, rank);
      }
      if (starts.size() != members.size()) continue;
      std::sort(starts.begin(), starts.end());
      const auto &last = starts.back(), &before = starts[starts.size() - 2];
      int64_t by = last.first - before.first;
      if (by <= worst.by) continue;
      const RankTrace& late = job.ranks[last.second];
      by -= waiting_time(late, before.first, last.first);  // for ranks that are late themselves
      if (by <= worst.by) continue;
      worst = {by, before.first, last.second, r};
      for (const Record& own : late.records)
        if (own.event == Event::kStart && own.time == last.first) worst.record = own;
    }
  return worst;
}

std::optional<flight::Phase> phase_during(const RankTrace& t, int64_t begin, int64_t end) {
  std::vector<Record> open;
  std::map<flight::Phase, int64_t> times;
  for (const Record& r : t.records) {
    if (r.event == Event::kPhaseBegin && r.phase != flight::Phase::kStep) open.push_back(r);
    if (r.event != Event::kPhaseEnd) continue;
    const auto it = std::find_if(open.rbegin(), open.rend(), [&](const Record& o) { return o.phase == r.phase; });
    if (it == open.rend()) continue;
    times[r.phase] += std::max<int64_t>(0, std::min(end, r.time) - std::max(begin, it->time));
    open.erase(std::next(it).base());
  }
  for (const auto& [phase, spent] : times)
    if (2 * spent > end - begin) return phase;
  return {};
}

}  // namespace weft::dist::diagnose
