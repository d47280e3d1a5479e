#include "distributed/diagnose/trace.h"

#include <algorithm>

#include "framework/mesh/mesh.h"

namespace weft::dist::diagnose {

using flight::Event;
using flight::Record;

namespace {

bool same_collective(const Record& a, const Record& b) {
  return a.communicator == b.communicator && a.number == b.number && is_transfer(a) == is_transfer(b);
}

// The communicator of the first ranks of all processes (distributed/launch/processes.cc).
constexpr std::string_view kProcesses = "processes";

std::string_view name_of(const RankTrace& t, const Record& r) {
  return r.communicator < t.communicators.size() ? std::string_view(t.communicators[r.communicator]) : "";
}

}  // namespace

std::string text_of(Collective kind, std::string_view axes, DType dtype, int64_t bytes) {
  if (kind == Collective::kBarrier) return str_cat(kind, " ", axes);
  return str_cat(kind, " ", axes, " ", dtype, " ", bytes, " bytes");
}

Moment moment_at(const RankTrace& t, int64_t time) {
  Moment m;
  std::vector<Record> open;
  for (const Record& r : t.records) {
    if (r.time > time) break;
    ++m.count;
    m.last = &r;
    const auto same = [&](const Record& o) { return same_collective(o, r); };
    switch (r.event) {
      case Event::kStart:
        open.push_back(r);
        m.outcome = 0;
        break;
      case Event::kWait:
        std::erase_if(open, same);
        open.push_back(r);
        break;
      case Event::kEnd:
        m.outcome = r.outcome;
        if (r.outcome) {  // the rank has waited until now
          std::stable_partition(open.begin(), open.end(), [&](const Record& o) { return !same(o); });
          break;
        }
        std::erase_if(open, same);
        m.done = &r;
        break;
      case Event::kPhaseBegin:
        if (r.phase == flight::Phase::kStep) {  // a failed step has no end
          const auto step = std::find_if(m.phases.begin(), m.phases.end(),
                                         [](const Record& p) { return p.phase == flight::Phase::kStep; });
          m.phases.erase(step, m.phases.end());
          open.clear();
          m.failed_itself = false, m.outcome = 0;
        }
        m.phases.push_back(r);
        break;
      case Event::kPhaseEnd:
        while (!m.phases.empty()) {
          const flight::Phase ended = m.phases.back().phase;
          m.phases.pop_back();
          if (ended == r.phase) break;
        }
        break;
      case Event::kFailed:
        m.failed_itself = m.outcome == 0;
        break;
      case Event::kNone:
        break;
    }
  }
  if (open.empty() || !m.last) return m;
  // A rank waits if it has no newer record.
  const Record& newest = open.back();
  if (newest.sequence == m.last->sequence || m.outcome) m.waits = newest;
  return m;
}

Groups::Groups(const TracedJob& job) : job_(job) {
  for (const RankTrace& t : job.ranks) {
    auto& starts = starts_.emplace_back();
    for (const Record& r : t.records)
      if (r.event == Event::kStart && !is_transfer(r)) starts.emplace(std::pair(r.communicator, r.number), r.time);
  }
}

std::vector<int> Groups::members(const RankTrace& t, const Record& r) const {
  const auto [it, added] = members_.try_emplace({t.rank, r.plan, r.communicator});
  if (added) it->second = find_members(t, r);
  return it->second;
}

std::vector<int> Groups::find_members(const RankTrace& t, const Record& r) const {
  std::vector<int> all;
  if (name_of(t, r) == kProcesses) {
    std::map<std::pair<std::string, int>, int> first;
    for (const RankTrace& other : job_.ranks)
      if (other.present()) first.emplace(std::pair(other.host, other.pid), other.rank);
    for (const auto& [process, rank] : first) all.push_back(rank);
    std::sort(all.begin(), all.end());
    return all;
  }
  try {
    const auto plan = job_.plans.find({r.plan, t.rank});
    const Mesh mesh = Mesh::parse(plan != job_.plans.end() ? plan->second->mesh : t.mesh, {});
    if (name_of(t, r) == flight::kReplicaAxis && !mesh.find(flight::kReplicaAxis))
      return {t.rank};  // the others are in other jobs
    if (t.rank < mesh.size() && mesh.size() <= job_.size) return mesh.group(t.rank, name_of(t, r));
  } catch (const Error&) {  // a damaged name
  }
  for (int i = 0; i < job_.size; ++i) all.push_back(i);
  return all;
}

std::optional<int64_t> Groups::start_of(int rank, const RankTrace& t, const Record& r) const {
  const RankTrace& other = job_.ranks[rank];
  const auto row = std::find(other.communicators.begin(), other.communicators.end(), name_of(t, r));
  const auto c = static_cast<uint16_t>(row - other.communicators.begin());
  if (row == other.communicators.end()) return {};
  if (is_transfer(r)) {
    // The transfers between two ranks are ordered: the n-th transfers of both ranks in a run belong together.
    const std::vector<int> group = members(t, r);
    const auto position = std::find(group.begin(), group.end(), t.rank) - group.begin();
    int before = 0;
    for (const Record& s : t.records)
      before += s.event == Event::kStart && s.communicator == r.communicator && s.run == r.run && s.kind == r.kind &&
                s.peer == r.peer && s.sequence <= r.sequence && s.number <= r.number;
    const Collective opposite = r.kind == Collective::kSend ? Collective::kRecv : Collective::kSend;
    for (const Record& s : other.records)
      if (s.event == Event::kStart && s.communicator == c && s.run == r.run && s.kind == opposite &&
          s.peer == position && --before <= 0)
        return s.time;
    return {};
  }
  const auto& starts = starts_[rank];
  const auto it = starts.lower_bound({c, r.number});
  if (it != starts.end() && it->first == std::pair(c, r.number)) return it->second;
  // Its record may be lost.
  const bool later = it != starts.end() && it->first.first == c;
  const bool none = it == starts.begin() || std::prev(it)->first.first != c;
  if (later || (none && other.lost > 0 && other.started[c] >= r.number)) return 0;
  return {};
}

std::vector<int> Groups::missing(const RankTrace& t, const Record& r, int64_t time) const {
  std::vector<int> all;
  const std::vector<int> group = members(t, r);
  for (size_t i = 0; i < group.size(); ++i) {
    if (group[i] == t.rank || (is_transfer(r) && i != r.peer)) continue;
    const auto start = start_of(group[i], t, r);
    if (!start || *start > time) all.push_back(group[i]);
  }
  return all;
}

}  // namespace weft::dist::diagnose
