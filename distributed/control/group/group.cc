#include "distributed/control/group/group.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

using Stand = ReplicaStatus::Stand;

std::string name_of(const ReplicaStatus& s) { return str_cat("replica '", one_line(s.name, 80), "'"); }

/// The first line that two texts do not share.
std::pair<std::string, std::string> difference_of(std::string_view a, std::string_view b) {
  while (true) {
    const std::string_view x = a.substr(0, a.find('\n')), y = b.substr(0, b.find('\n'));
    if (x != y || (a.size() == x.size() && b.size() == y.size())) return {std::string(x), std::string(y)};
    a.remove_prefix(std::min(a.size(), x.size() + 1));
    b.remove_prefix(std::min(b.size(), y.size() + 1));
  }
}

bool joins(const ReplicaRecord& r) { return !r.gone && r.status.stand == Stand::kJoins; }

/// The record of a member's process; null if it is gone.
const ReplicaRecord* present(const GroupState& s, const ViewMember& m) {
  const auto at = s.replicas.find(m.name);
  const bool here = at != s.replicas.end() && at->second.incarnation == m.incarnation && !at->second.gone;
  return here ? &at->second : nullptr;
}

class GroupTransition {
 public:
  explicit GroupTransition(GroupState& s) : s_(s) {}

  GroupOutcome run(const GroupEvent& e) {
    pass_time(e.now_ms);
    const GroupStatus before = status_of(s_, s_.view.number);
    switch (e.kind) {
      case GroupEvent::Kind::kStatus:
        status(e.connection, e.status);
        break;
      case GroupEvent::Kind::kClosed:
        for (auto& [name, r] : s_.replicas)
          if (r.connection == e.connection) r.connection = 0, r.closed_ms = s_.now_ms;
        break;
      case GroupEvent::Kind::kTick:
        find_gone();
        break;
      case GroupEvent::Kind::kDeath:
        end(e.status.name, e.status.incarnation);
        break;
    }
    decide();
    forget_gone();
    const GroupStatus after = status_of(s_, s_.view.number);
    if (after.number != before.number || after.report_wanted != before.report_wanted ||
        after.stop_wanted != before.stop_wanted) {
      for (const auto& [name, r] : s_.replicas)
        if (r.connection != 0 && r.connection != answered_) reply(r.connection, r.known);
    }
    if (answered_ != 0) reply(answered_, e.status.view);
    return std::move(out_);
  }

 private:
  // ---- output ----
  void reply(uint64_t connection, int64_t known) { out_.replies.emplace_back(connection, status_of(s_, known)); }

  // ---- processes ----
  bool is_member(const std::string& name, const ReplicaRecord& r) const {
    return find(s_.view, name, r.incarnation) != nullptr;
  }
  /// Whether a report can be true: a member has the state of the view, unless it must heal first.
  bool is_possible(const ReplicaStatus& status) const {
    const ViewMember* self = find(s_.view, status.name, status.incarnation);
    if (!self || status.stand != Stand::kReports || status.view != s_.view.number) return true;
    return status.state_view == s_.view.number ? status.step >= s_.view.start : self->heals;
  }
  static bool is_name(const std::string& name, int64_t incarnation) {
    return !name.empty() && name.size() <= kReplicaNameBytes && incarnation >= 1 && incarnation <= kMostIncarnation;
  }
  /// The latest known incarnation of a replica; 0: none.
  int64_t latest_of(const std::string& name) const {
    const auto at = s_.replicas.find(name);
    return std::max(at == s_.replicas.end() ? 0 : at->second.incarnation, ended_of(name));
  }
  /// The latest incarnation of a replica whose end a launcher has reported; 0: none.
  int64_t ended_of(const std::string& name) const {
    const auto at = s_.ended.find(name);
    return at == s_.ended.end() ? 0 : at->second.incarnation;
  }
  /// A launcher reports the end of a process.
  void end(const std::string& name, int64_t incarnation) {
    if (!is_name(name, incarnation) || ended_of(name) > incarnation) return;
    if (s_.ended.size() >= kReplicas && !s_.ended.contains(name))
      s_.ended.erase(std::ranges::min_element(s_.ended, {}, [](const auto& ended) { return ended.second.heard_ms; }));
    s_.ended[name] = {incarnation, s_.now_ms};
    if (const auto at = s_.replicas.find(name); at != s_.replicas.end())
      at->second.gone |= at->second.incarnation <= incarnation;
  }
  /// Why a process must end; "" if it need not.
  std::string refusal_of(const ReplicaStatus& status) const {
    if (!is_name(status.name, status.incarnation) || status.step < 0 || status.step >= kMostSteps ||
        status.state_view < 0 || status.state_view >= kMostSteps || status.note < 0 || status.note > kMostNote ||
        status.facts.size() > kReplicaFactsBytes || status.own.size() > kReplicaOwnBytes || !is_possible(status))
      return str_cat("the service of replicas got a damaged status of ", name_of(status),
                     "; need equal versions of Weft");
    if (ended_of(status.name) == status.incarnation)
      return str_cat(name_of(status), " has ended, as its launcher has reported; need a new start of this replica");
    if (status.view > s_.view.number)
      return str_cat(name_of(status), " is in view ", status.view, ", and the service of replicas in view ",
                     s_.view.number, "; need the service's journal when it restarts");
    if (s_.view.number != 0 && status.state_view > s_.view.number)
      return str_cat(name_of(status), " has a checkpoint of view ", status.state_view,
                     ", and the service of replicas is in view ", s_.view.number,
                     "; need the service's journal when it restarts");
    if (latest_of(status.name) > status.incarnation)
      return str_cat(name_of(status), " was started again; need one process for each replica");
    if (!s_.replicas.contains(status.name) && s_.replicas.size() >= kReplicas)
      return str_cat(name_of(status), " is one more than ", kReplicas, " replicas, the limit");
    if (status.stand != Stand::kJoins) return "";
    if (status.replicas != 0 && status.replicas != s_.config.replicas)
      return str_cat(name_of(status), " has a mesh of ", status.replicas, " replicas, and the service of replicas has ",
                     s_.config.replicas, "; need equal numbers in --mesh and in --replicas of launch --serve");
    const std::string* facts = s_.view.number != 0 ? &s_.view.facts : nullptr;
    for (const auto& [name, r] : s_.replicas)
      if (!facts && joins(r) && name != status.name) facts = &r.status.facts;
    if (!facts || *facts == status.facts) return "";
    const auto [theirs, own] = difference_of(*facts, status.facts);
    return str_cat(name_of(status), " has '", one_line(own, 80), "' and the group has '", one_line(theirs, 80),
                   "'; need equal values: start all replicas with the same binary, flags and environment");
  }

  void status(uint64_t connection, const ReplicaStatus& status) {
    const int64_t latest = latest_of(status.name);
    const bool ended = status.incarnation > 0 && ended_of(status.name) == status.incarnation;
    if (ended) s_.ended.at(status.name).heard_ms = s_.now_ms;
    if (const std::string refusal = refusal_of(status); !refusal.empty()) {
      out_.replies.emplace_back(
          connection,
          GroupStatus{.refused = refusal, .incarnation = latest > status.incarnation ? latest : 0, .ended = ended});
      return;
    }
    answered_ = connection;
    ReplicaRecord& r = s_.replicas[status.name];
    if (r.incarnation != status.incarnation) r = {.incarnation = status.incarnation};
    if (connection >= r.connection) r.connection = connection, r.closed_ms = -1;
    r.known = std::max(r.known, status.view);
    r.heard_ms = s_.now_ms;
    r.gone = status.stand == Stand::kLeaves;
    if (status.view != s_.view.number) return;  // its stand is of an earlier view
    if (status.stand == (is_member(status.name, r) ? Stand::kReports : Stand::kJoins)) r.status = status;
  }

  void pass_time(int64_t now_ms) {
    const int64_t gap = now_ms - s_.now_ms;
    if (gap <= 0) return;
    s_.now_ms = now_ms;
    if (gap <= s_.config.stall_ms) return;
    for (auto& [name, r] : s_.replicas) {
      r.heard_ms += gap;
      if (r.closed_ms >= 0) r.closed_ms += gap;
    }
    for (auto& [name, ended] : s_.ended) ended.heard_ms += gap;
    if (s_.gather_from_ms >= 0) s_.gather_from_ms += gap;
  }

  void find_gone() {
    for (auto& [name, r] : s_.replicas)
      r.gone |= s_.now_ms - r.heard_ms > s_.config.silence_ms ||
                (r.closed_ms >= 0 && s_.now_ms - r.closed_ms > s_.config.reconnect_ms);
  }

  void forget_gone() {
    std::erase_if(s_.replicas, [&](const auto& r) { return r.second.gone && !is_member(r.first, r.second); });
    std::erase_if(s_.ended, [&](const auto& e) { return s_.now_ms - e.second.heard_ms > s_.config.ended_ms; });
  }

  // ---- views ----
  using Records = std::vector<const ReplicaRecord*>;
  using StateId = std::pair<int64_t, int64_t>;  // view, step

  /// Makes the next view, if the members of the current one allow it.
  void decide() {
    const int64_t gather_from_ms = std::exchange(s_.gather_from_ms, -1);
    Records holders, others;  // processes with the state of the view, and without it
    for (const ViewMember& m : s_.view.members) {
      const ReplicaRecord* r = present(s_, m);
      if (r && r->status.stand != Stand::kReports) return;
      if (r) (r->status.state_view == s_.view.number ? holders : others).push_back(r);
    }
    for (const auto& [name, r] : s_.replicas)
      if (joins(r)) others.push_back(&r);
    if (holders.empty()) return begin(others, gather_from_ms);
    int64_t top = 0;
    for (const ReplicaRecord* r : holders) {
      top = std::max(top, r->status.step);
      note_ = std::max(note_, r->status.note);
    }
    const bool all =
        std::ranges::all_of(holders, [&](const ReplicaRecord* r) { return r->status.step == top && r->status.sums; });
    const int64_t start = top + all;
    ended_ = std::ranges::any_of(holders,
                                 [&](const ReplicaRecord* r) { return r->status.finished && r->status.step == top; });
    if (ended_) others.clear();
    make_view(holders, others, {s_.view.number, start}, [&](const ReplicaStatus& s) {
      return s.state_view == s_.view.number && (s.step == start || (s.step + 1 == start && s.sums));
    });
  }

  /// Makes a view in which the latest state begins, because no member has the state of the current view. No
  /// member has had it since `gather_from_ms`; -1: since now.
  void begin(const Records& processes, int64_t gather_from_ms) {
    if (processes.empty()) return;
    s_.gather_from_ms = gather_from_ms < 0 ? s_.now_ms : gather_from_ms;
    const bool in_time = s_.now_ms - s_.gather_from_ms < s_.config.gather_ms;
    // A member may have the state of the view until its replica has started again, and so may earlier members.
    const bool complete =
        static_cast<int64_t>(processes.size()) >= s_.config.replicas &&
        std::ranges::all_of(s_.view.members, [&](const ViewMember& m) {
          return std::ranges::any_of(processes, [&](const ReplicaRecord* r) { return r->status.name == m.name; });
        });
    StateId latest{-1, -1};
    for (const ReplicaRecord* r : processes) latest = std::max(latest, {r->status.state_view, r->status.step});
    // The view before the end may have made no step, so that its state names an earlier view.
    if (s_.view.ended && latest.second < s_.view.start) {
      if (!in_time)
        refuse(processes, str_cat("the run has ended at step ", s_.view.start,
                                  ", and no replica has this state; need a "
                                  "replica that resumes from its checkpoint, or another journal for a new run"));
      return;
    }
    if (in_time && !complete) return;
    const auto has_state = [&](const ReplicaStatus& s) { return StateId{s.state_view, s.step} == latest; };
    Records first, then;
    for (const ReplicaRecord* r : processes) (has_state(r->status) ? first : then).push_back(r);
    make_view(first, then, latest, has_state);
  }

  template <class HasState>
  void make_view(const Records& first, const Records& then, const StateId& from, const HasState& has_state) {
    if (!ended_ && static_cast<int64_t>(first.size() + then.size()) < s_.config.replicas_min) return;
    const auto [after, start] = from;
    ReplicaView next{
        .number = std::max(s_.view.number, after) + 1, .start = start, .after = after, .ended = ended_, .note = note_};
    next.facts = s_.view.number == 0 ? first[0]->status.facts : s_.view.facts;
    Records records = first;
    records.insert(records.end(), then.begin(), then.end());
    for (const ReplicaRecord* r : records) {
      if (static_cast<int64_t>(next.members.size()) == s_.config.replicas) break;
      const ViewMember* before = find(s_.view, r->status.name, r->incarnation);
      next.members.push_back(
          {r->status.name, r->incarnation, !has_state(r->status), before ? before->own : r->status.own});
    }
    if (const std::string problem = problem_of(s_.view, next); !problem.empty())
      return refuse(records, str_cat("the service of replicas cannot make the next view, because ", problem));
    commit(s_, next);
    out_.views.push_back(std::move(next));
  }

  /// Ends processes: they are gone.
  void refuse(const Records& processes, const std::string& text) {
    for (const ReplicaRecord* r : processes) {
      if (r->connection != 0) out_.replies.emplace_back(r->connection, GroupStatus{.refused = text});
      s_.replicas.at(r->status.name).gone = true;
    }
  }

  GroupState& s_;
  GroupOutcome out_;
  uint64_t answered_ = 0;  // the connection of the event's status, which gets a reply
  bool ended_ = false;     // the next view ends the run
  int64_t note_ = 0;       // the note of the next view
};

}  // namespace

GroupOutcome apply(GroupState& state, const GroupEvent& event) { return GroupTransition(state).run(event); }

GroupStatus status_of(const GroupState& s, int64_t known) {
  GroupStatus g{.number = s.view.number};
  if (known < s.view.number) g.view = s.view;
  if (s.view.ended) return g;
  for (const ViewMember& m : s.view.members) {
    const ReplicaRecord* r = present(s, m);
    g.report_wanted |= !r || r->status.stand == Stand::kReports;
  }
  const bool has_room = static_cast<int64_t>(s.view.members.size()) < s.config.replicas;
  for (const auto& [name, r] : s.replicas) g.stop_wanted |= has_room && joins(r);
  return g;
}

bool commit(GroupState& s, const ReplicaView& view) {
  if (!problem_of(s.view, view).empty()) return false;
  s.view = view;
  s.gather_from_ms = -1;
  for (auto& [name, r] : s.replicas) r.status = {};
  for (const ViewMember& m : view.members) {
    ReplicaRecord& r = s.replicas[m.name];
    if (r.incarnation != m.incarnation) r = {.incarnation = m.incarnation, .heard_ms = s.now_ms};
  }
  return true;
}

std::string title_of_job(const std::string& job) { return str_cat(kGroupTitle, ", job '", job, "', "); }
std::string title_of(const GroupState& s) {
  return str_cat(title_of_job(s.config.job), s.config.replicas, " replicas");
}

int64_t replicas_in(std::string_view title) {
  const size_t begin = title.rfind(", ");
  int64_t n = 0;
  if (begin != title.npos) std::from_chars(title.data() + begin + 2, title.data() + title.size(), n);
  return n;
}

std::string commit(GroupState& s, const std::string& record) {
  try {
    const ReplicaView view = view_of(record, s.view);
    if (static_cast<int64_t>(view.members.size()) > s.config.replicas)
      return str_cat("view ", view.number, " has ", view.members.size(), " members; need at most ", s.config.replicas);
    commit(s, view);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

void restart(GroupState& s, int64_t now_ms) {
  s.now_ms = now_ms;
  for (auto& [name, r] : s.replicas) r.heard_ms = now_ms + s.config.restart_ms - s.config.silence_ms;
}

}  // namespace weft::control
