// Explores all orders of events of a small group, with the shipped logic of service and leaders: breadth first, each
// state once, with bounds on steps, crashes, cuts, starts and restarts of the service. Checks in each state:
//   I1  of two processes, one has committed the first steps of the other. Dead processes count, unless their steps were
//       cancelled because no process with the state was left. A live process loses no committed step.
//   I2  in one view processes with the state are at most one step apart.
//   I3  each member with the state can take the start that the service chose.
//   I4  without further faults all live replicas end, after one of them has committed all steps.
//   I5  each part of the data is in one committed step: the history of the views gives the view of each committed step.
//   I6  equal steps have equal bits: a state is the list of the views that committed its steps.
//   I7  a process whose end was reported is in no later view, also if it lives on for a while.
//
// One event sends and receives a status. A status counts only for the view that it names, and does not change while
// this view is the current one. So a late reception equals a late event. A cut lets a sum or an ack fail on one
// process, or makes the service take a live process for gone. A crash may be reported before the process ends, but not
// after a restart of the service, which loses the report.
//   --bounds=R,S,C,U,B,T,E  only this set: replicas, steps, crashes, cuts, starts, restarts of the service, and crashes
//                           that are reported early
//   --full                  --bounds=3,2,1,2,1,1,0, which takes minutes
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

#include "distributed/control/group/group.h"
#include "distributed/control/group/member.h"
#include "framework/base/clock.h"
#include "framework/base/str_cat.h"
#include "framework/io/checksum.h"

namespace weft::control {
namespace {

struct Bounds {
  int replicas, steps, crashes, cuts, starts, restarts, reports = 0;
};

std::vector<Bounds> g_sets = {{3, 2, 1, 0, 1, 1, 1}, {2, 2, 1, 1, 1, 1, 1}, {3, 2, 1, 1, 1, 0, 0}};

/// A wrong protocol, which a check must find.
enum class Mutant { kNone, kNoAck, kForgetSums, kRetryAlthoughAllHave, kDropState, kForgetReports };

struct SimulatedProcess {
  MemberState m;
  bool live = true;
  bool reported = false;   // it lives, and its launcher has reported its end
  bool cancelled = false;  // it is reported, and a view has begun without its latest steps
  bool had = false;        // it once had a state of the run
  std::string history;     // the view of each committed step
};

/// The part of a process in the collectives of a view.
struct Part {
  int64_t view, process;
  int64_t computed = 0, entered = 0;  // it has begun the steps below `computed`, and entered the acks below `entered`
  bool stop = false;                  // its stop bit in the latest ack
};

struct Node {
  GroupState group;
  std::vector<SimulatedProcess> processes;
  std::vector<Part> parts;
  std::string history;             // the view of each committed step of any process, dead or not, that is not cancelled
  std::vector<ReplicaView> views;  // without members
  Bounds left;
};

enum class Move {
  kSums,
  kFailed,
  kAckComplete,
  kAckFailed,
  kHealed,
  kFinished,
  kTell,
  kHear,
  kGone,
  kReport,
  kCrash,
  kStart,
  kRestart,
  kGathered
};
constexpr const char* kMoves[] = {"has sums",
                                  "fails",
                                  "completes the ack",
                                  "fails in the ack",
                                  "has healed",
                                  "finishes",
                                  "is heard",
                                  "hears the service",
                                  "is taken for dead",
                                  "is reported dead",
                                  "crashes",
                                  "starts",
                                  "(the service restarts)",
                                  "(the time to gather is over)"};

bool takes_part(const MemberState& m) {
  return m.stage == MemberStage::kHealing || m.stage == MemberStage::kComputing || m.stage == MemberStage::kAck;
}

bool has_state(const MemberState& m) { return m.state_view == m.view.number; }

class Explorer {
 public:
  Explorer(Bounds bounds, Mutant mutant) : bounds_(bounds), mutant_(mutant) {}

  /// Explores until the first violation. Returns it, or "".
  std::string run() {
    const int64_t begin_ns = internal::now_ns();
    std::vector<std::pair<uint32_t, Node>> level, next;  // and the numbers of the states
    level.emplace_back(0, first());
    seen_.insert(key_of(level[0].second));
    came_.push_back({0, Move::kTell, 0});
    for (events_ = 0; !level.empty() && problem_.empty(); ++events_) {
      next.clear();
      for (const auto& [number, node] : level) {
        expand(number, node, next);
        if (!problem_.empty()) break;
      }
      level.swap(next);
    }
    const double seconds = 1e-9 * static_cast<double>(internal::now_ns() - begin_ns);
    std::printf("%d,%d,%d,%d,%d,%d,%d: %zu states, %lld transitions, %lld events deep, %.1f s\n", bounds_.replicas,
                bounds_.steps, bounds_.crashes, bounds_.cuts, bounds_.starts, bounds_.restarts, bounds_.reports,
                seen_.size(), static_cast<long long>(transitions_), static_cast<long long>(events_), seconds);
    return problem_;
  }

  /// The number of events before the violation.
  int64_t events() const { return events_; }

 private:
  struct Came {
    uint32_t from;
    Move move;
    int process;
  };

  // ---- the model ----
  static std::string name_of(size_t slot) { return std::string(1, static_cast<char>('a' + slot)); }

  static constexpr int64_t kNever = int64_t{1} << 40;  // time does not pass; kGone and kGathered replace it
  GroupConfig config() const {
    return {.replicas = bounds_.replicas,
            .silence_ms = kNever,
            .reconnect_ms = kNever,
            .restart_ms = kNever,
            .gather_ms = 1,
            .ended_ms = kNever};
  }

  Node first() {
    Node n{.group = {.config = config()}, .left = bounds_};
    ReplicaView view{.number = 1};
    for (int i = 0; i < bounds_.replicas; ++i) {
      view.members.push_back({name_of(static_cast<size_t>(i)), 1, false});
      n.processes.push_back({.m = {.name = name_of(static_cast<size_t>(i))}});
    }
    if (!commit(n.group, view)) problem_ = "the first view does not fit";
    n.views = {{.number = 1}};
    for (size_t i = 0; i < n.processes.size(); ++i)
      drive(n, i, {.kind = MemberEvent::Kind::kStatus, .status = status_of(n.group, 0)});
    return n;
  }

  void fail(const std::string& text) {
    if (problem_.empty()) problem_ = text;
  }

  Part& part_of(Node& n, int64_t view, size_t process) {
    for (Part& p : n.parts)
      if (p.view == view && p.process == static_cast<int64_t>(process)) return p;
    return n.parts.emplace_back(Part{view, static_cast<int64_t>(process)});
  }
  static const Part* find_part(const Node& n, int64_t view, size_t process) {
    for (const Part& p : n.parts)
      if (p.view == view && p.process == static_cast<int64_t>(process)) return &p;
    return nullptr;
  }
  static size_t process_of(const Node& n, const ViewMember& m) {
    for (size_t i = 0; i < n.processes.size(); ++i)
      if (n.processes[i].m.name == m.name && n.processes[i].m.incarnation == m.incarnation) return i;
    return n.processes.size();
  }

  /// Whether a process has ended its part in a view.
  static bool closed(const SimulatedProcess& p, int64_t view) {
    return !p.live || p.m.view.number > view || (p.m.view.number == view && !takes_part(p.m));
  }
  template <class Test>
  static bool all_members(const Node& n, const MemberState& m, const Test& test) {
    for (const ViewMember& member : m.view.members)
      if (!test(process_of(n, member))) return false;
    return true;
  }
  static bool other_closed(const Node& n, size_t i) {
    const MemberState& m = n.processes[i].m;
    return !all_members(n, m, [&](size_t j) { return j == i || !closed(n.processes[j], m.view.number); });
  }

  void drive(Node& n, size_t i, const MemberEvent& event) {
    SimulatedProcess& p = n.processes[i];
    const int64_t computed_in = p.m.view.number;
    const MemberState before = p.m;
    for (MemberAction action : apply(p.m, event)) {
      if (action == MemberAction::kEnd && !p.m.refused.empty() && !p.m.refused.starts_with("the run has ended") &&
          !p.reported)
        fail(str_cat("I3: ", p.m.refused));
      if (action == MemberAction::kCommit) commit_step(n, i, computed_in);
      if (action == MemberAction::kEnterAck && mutant_ == Mutant::kNoAck)
        return drive(n, i, {.kind = MemberEvent::Kind::kAckComplete, .view = p.m.view.number, .stop = p.m.stop});
    }
    if (mutant_ == Mutant::kDropState && before.state_view != 0 && p.m.stage == MemberStage::kJoining) {
      p.m = {.name = p.m.name, .incarnation = p.m.incarnation, .view = p.m.view};
      p.history.clear();
    }
    p.had |= p.m.state_view != 0;
    if (p.m.stage == MemberStage::kComputing && p.m.step < bounds_.steps)
      part_of(n, p.m.view.number, i).computed = p.m.step + 1;
    if (p.m.stage == MemberStage::kAck) {
      Part& part = part_of(n, p.m.view.number, i);
      if (part.entered <= p.m.step) part.stop = p.m.stop;
      part.entered = p.m.step + 1;
    }
  }

  void commit_step(Node& n, size_t i, int64_t view) {
    std::string& own = n.processes[i].history;
    const size_t step = own.size();
    own += static_cast<char>('0' + view);
    if (n.processes[i].cancelled) return;
    if (step == n.history.size()) {
      n.history += own.back();
    } else if (step > n.history.size() || n.history[step] != own.back()) {
      fail(str_cat("I1: step ", step, " is committed twice"));
    }
    const auto history = history_of(n.views, view);
    for (size_t v = 0, at = 0; at <= step; ++at) {
      while (v + 1 < history.size() && history[v + 1].start <= static_cast<int64_t>(at)) ++v;
      if (own[at] != '0' + history[v].number) fail(str_cat("I5: the journal has another view for step ", at));
    }
  }

  void group_event(Node& n, const GroupEvent& event) {
    std::vector<std::string> holders;
    const auto holds = [](const ReplicaStatus& s) {
      return s.stand == ReplicaStatus::Stand::kReports && s.state_view == s.view;
    };
    const auto ended = n.group.ended.find(event.status.name);
    const bool refused = ended != n.group.ended.end() && ended->second.incarnation == event.status.incarnation;
    for (const auto& [name, r] : n.group.replicas) {
      const bool dies = r.heard_ms < 0 || (event.kind == GroupEvent::Kind::kDeath && name == event.status.name);
      const bool speaks = event.kind == GroupEvent::Kind::kStatus && name == event.status.name && !refused;
      if (speaks ? holds(event.status) : !r.gone && !dies && holds(r.status)) holders.push_back(name);
    }
    const GroupOutcome out = apply(n.group, event);
    if (mutant_ == Mutant::kForgetReports) n.group.ended.clear();
    for (const ReplicaView& v : out.views) {
      for (const ViewMember& m : v.members)
        if (n.processes[process_of(n, m)].reported)
          fail(str_cat("I7: view ", v.number, " has process ", m.name, ", whose end was reported"));
      if (mutant_ == Mutant::kRetryAlthoughAllHave) retry(n, holders);
      const int64_t start = n.group.view.start;
      n.views.push_back({.number = v.number, .start = start, .after = v.after});
      for (const ViewMember& m : v.members)
        for (const std::string& h : holders)
          if (m.heals && m.name == h) fail("I3: a member that has the state cannot take the start");
      for (SimulatedProcess& p : n.processes) p.cancelled |= p.reported && holders.empty();
      if (start >= static_cast<int64_t>(n.history.size())) continue;
      if (!holders.empty()) fail(str_cat("I1: view ", v.number, " makes step ", start, " again, which is committed"));
      n.history.resize(static_cast<size_t>(start));
    }
    for (auto& [name, r] : n.group.replicas) r.known = r.heard_ms = 0;
    for (const auto& [connection, status] : out.replies)
      if (!status.refused.empty()) drive(n, connection - 1, {.kind = MemberEvent::Kind::kStatus, .status = status});
  }

  /// The mutant: the service lets members that all have the sums compute the step again.
  static void retry(Node& n, const std::vector<std::string>& holders) {
    ReplicaView& view = n.group.view;
    bool all = !holders.empty();
    for (const std::string& h : holders)
      for (const SimulatedProcess& p : n.processes)
        if (p.m.name == h && find(view, h, p.m.incarnation)) all &= p.m.sums && p.m.step + 1 == view.start;
    view.start -= all;
  }

  // ---- transitions ----
  void expand(uint32_t number, const Node& n, std::vector<std::pair<uint32_t, Node>>& next) {
    bool any = false;
    const auto go = [&](Move move, size_t i, bool fault, const auto& change) {
      if (!problem_.empty()) return;
      Node to = n;
      change(to);
      tidy(to);
      any |= !fault;
      ++transitions_;
      const bool is_new = seen_.insert(key_of(to)).second;
      if (is_new) check(to);
      if (!is_new && problem_.empty()) return;
      came_.push_back({number, move, static_cast<int>(i)});
      if (!problem_.empty()) return print_trace(came_.size() - 1);
      next.emplace_back(static_cast<uint32_t>(came_.size() - 1), std::move(to));
    };
    for (size_t i = 0; i < n.processes.size(); ++i) moves_of(n, i, go);
    if (n.left.restarts > 0)
      go(Move::kRestart, 0, true, [&](Node& to) {
        --to.left.restarts;
        to.group = {.config = config()};
        for (SimulatedProcess& p : to.processes) p.live &= !p.reported;
        const ReplicaView& v = n.group.view;
        if (v.number != 0 && !commit(to.group, v)) fail("a view of the journal does not fit");
        restart(to.group, 0);
      });
    if (n.group.gather_from_ms >= 0 && all_kept_are_known(n))
      go(Move::kGathered, 0, false, [&](Node& to) {
        group_event(to, {.kind = GroupEvent::Kind::kTick, .now_ms = 1});
        to.group.now_ms = 0;
      });
    if (!any && problem_.empty()) check_end(number, n);
  }

  template <class Go>
  void moves_of(const Node& n, size_t i, const Go& go) {
    const SimulatedProcess& p = n.processes[i];
    const MemberState& m = p.m;
    const bool cut = n.left.cuts > 0;
    const auto event = [&](MemberEvent::Kind kind, bool fault = false, bool stop = false) {
      return [=, this](Node& to) {
        to.left.cuts -= fault;
        drive(to, i, {.kind = kind, .view = to.processes[i].m.view.number, .stop = stop});
      };
    };
    const auto record = n.group.replicas.find(m.name);
    const bool known = record != n.group.replicas.end() && record->second.incarnation == m.incarnation;
    const bool runs = p.live && m.stage != MemberStage::kEnded;
    if (known && !record->second.gone && (!runs || cut))
      go(Move::kGone, i, runs, [&](Node& to) {
        to.left.cuts -= runs;
        to.group.replicas.at(m.name).heard_ms = -2 * kNever;
        group_event(to, {.kind = GroupEvent::Kind::kTick});
      });
    if (m.stage == MemberStage::kEnded) return;
    if (!p.live) {
      const bool newest = i == newest_of(n, m.name);
      if (newest && n.left.starts > 0)
        go(Move::kStart, i, true, [&](Node& to) {
          --to.left.starts;
          to.processes.push_back({.m = {.name = m.name, .incarnation = m.incarnation + 1}});
        });
      return;
    }
    if (n.left.crashes > 0 && n.left.reports > 0 && !p.reported)
      go(Move::kReport, i, true, [&](Node& to) {
        --to.left.crashes, --to.left.reports;
        to.processes[i].reported = true;
        group_event(to, {.kind = GroupEvent::Kind::kDeath, .status = {.name = m.name, .incarnation = m.incarnation}});
      });
    if (p.reported || n.left.crashes > 0)
      go(Move::kCrash, i, !p.reported, [&](Node& to) {
        to.left.crashes -= !p.reported;
        to.processes[i].live = false;
      });
    const bool failed = other_closed(n, i);
    if (m.stage == MemberStage::kComputing && m.step == bounds_.steps)
      go(Move::kFinished, i, false, event(MemberEvent::Kind::kFinished));
    if (m.stage == MemberStage::kComputing && m.step < bounds_.steps) {
      if (all_members(n, m, [&](size_t j) {
            const Part* part = find_part(n, m.view.number, j);
            return part && part->computed > m.step;
          }))
        go(Move::kSums, i, false, event(MemberEvent::Kind::kSums));
      if (failed || cut) go(Move::kFailed, i, !failed, event(MemberEvent::Kind::kFailed, !failed));
    }
    if (m.stage == MemberStage::kAck) {
      bool stop = false;
      if (all_members(n, m, [&](size_t j) {
            const Part* part = find_part(n, m.view.number, j);
            stop |= part && part->stop;
            return part && part->entered > m.step;
          }))
        go(Move::kAckComplete, i, false, event(MemberEvent::Kind::kAckComplete, false, stop));
      if (failed || cut) go(Move::kAckFailed, i, !failed, event(MemberEvent::Kind::kAckFailed, !failed));
    }
    if (m.stage == MemberStage::kHealing) {
      size_t donor = n.processes.size();
      for (const ViewMember& other : m.view.members) {
        const size_t j = process_of(n, other);
        if (!closed(n.processes[j], m.view.number) && n.processes[j].m.view.number == m.view.number &&
            has_state(n.processes[j].m))
          donor = j;
      }
      if (donor < n.processes.size())
        go(Move::kHealed, i, false, [&](Node& to) {
          to.processes[i].history = to.processes[donor].history;
          event(MemberEvent::Kind::kHealed)(to);
        });
      if (failed || cut) go(Move::kFailed, i, !failed, event(MemberEvent::Kind::kFailed, !failed));
    }
    talk(n, i, known ? &record->second : nullptr, go);
  }

  /// The messages between a process and the service.
  template <class Go>
  void talk(const Node& n, size_t i, const ReplicaRecord* record, const Go& go) {
    const MemberState& m = n.processes[i].m;
    ReplicaStatus status = status_of(m);
    if (mutant_ == Mutant::kForgetSums) status.sums = false;
    const bool counts = status.stand != ReplicaStatus::Stand::kWorks && status.view == n.group.view.number;
    if ((record && record->gone) || (counts && (!record || record->status != status)))
      go(Move::kTell, i, false, [&](Node& to) {
        group_event(to, {.kind = GroupEvent::Kind::kStatus, .connection = i + 1, .status = status});
      });
    const GroupStatus g = status_of(n.group, m.view.number);
    if (g.view.number != 0 ||
        (g.number == m.view.number && takes_part(m) && (g.report_wanted || (g.stop_wanted && !m.stop))))
      go(Move::kHear, i, false, [&](Node& to) { drive(to, i, {.kind = MemberEvent::Kind::kStatus, .status = g}); });
  }

  static size_t newest_of(const Node& n, const std::string& name) {
    size_t newest = 0;
    for (size_t i = 0; i < n.processes.size(); ++i)
      if (n.processes[i].m.name == name) newest = i;
    return newest;
  }

  /// Whether each live process with a kept state has reported or joined, which takes less time than `gather_ms`.
  static bool all_kept_are_known(const Node& n) {
    for (const SimulatedProcess& p : n.processes) {
      if (!p.live || p.reported || p.m.state_view == 0 || p.m.stage == MemberStage::kEnded) continue;
      const auto r = n.group.replicas.find(p.m.name);
      if (r == n.group.replicas.end() || r->second.gone || r->second.status.stand == ReplicaStatus::Stand::kWorks)
        return false;
    }
    return true;
  }

  /// Removes parts of the state that no event can depend on.
  void tidy(Node& n) {
    std::erase_if(n.parts, [&](const Part& part) {
      if (part.view >= n.group.view.number) return false;
      for (const SimulatedProcess& p : n.processes)
        if (p.live && p.m.view.number == part.view && takes_part(p.m)) return false;
      return true;
    });
    for (SimulatedProcess& p : n.processes) {
      p.live &= !p.reported || p.m.stage != MemberStage::kEnded;
      if (p.live) continue;
      p.reported = p.cancelled = false;
      p.m = {.name = p.m.name, .incarnation = p.m.incarnation};
      p.history.clear();
    }
    std::erase_if(n.group.ended, [&](const auto& e) {
      return std::ranges::none_of(n.processes, [&](const SimulatedProcess& p) {
        return p.reported && p.m.name == e.first && p.m.incarnation == e.second.incarnation;
      });
    });
  }

  // ---- checks ----
  void check(const Node& n) {
    bool had = false, has = false;
    for (const SimulatedProcess& p : n.processes) {
      if (!p.live || p.reported) continue;
      had |= p.had;
      has |= p.m.state_view != 0;
      if (p.m.state_view != 0 &&
          (!n.history.starts_with(p.history) || static_cast<int64_t>(p.history.size()) != p.m.step))
        fail(str_cat("I1: process ", p.m.name, " has committed the steps of views ", p.history, ", and others ",
                     n.history));
      for (const SimulatedProcess& q : n.processes)
        if (q.live && takes_part(p.m) && takes_part(q.m) && has_state(p.m) && has_state(q.m) &&
            p.m.view.number == q.m.view.number && p.m.step > q.m.step + 1)
          fail("I2: two members are two steps apart");
    }
    if (had && !has) fail("I4: no process has the state any more");
    if (n.group.view.number > 4 + 2 * (bounds_.crashes + bounds_.cuts + bounds_.starts))
      fail(str_cat("I4: view ", n.group.view.number, " after a few faults"));
  }

  void check_end(uint32_t number, const Node& n) {
    bool any = false;
    for (const SimulatedProcess& p : n.processes) {
      if (!p.live) continue;
      any = true;
      if (p.m.stage != MemberStage::kEnded) fail(str_cat("I4: process ", p.m.name, " waits for ever"));
    }
    if (any && static_cast<int>(n.history.size()) < bounds_.steps) fail("I4: all processes end before the last step");
    if (!problem_.empty()) print_trace(number);
  }

  void print_trace(size_t number) {
    std::vector<std::string> lines;
    for (; number != 0; number = came_[number].from)
      lines.push_back(str_cat(came_[number].process, " ", kMoves[static_cast<int>(came_[number].move)]));
    events_ = static_cast<int64_t>(lines.size()) - 1;
    std::string text = problem_;
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) text += "\n  process " + *line;
    problem_ = text;
  }

  /// A hash of 64 bits: 10^7 states have a collision with a chance of 10^-5.
  static uint64_t key_of(const Node& n) {
    std::string k;
    const auto put = [&](auto v) { k += static_cast<char>(v); };
    const auto put_view = [&](const ReplicaView& v) {
      put(v.number), put(v.start), put(v.ended);
      for (const ViewMember& m : v.members) k += m.name, put(m.incarnation), put(m.heals);
      put(-1);
    };
    put(n.left.crashes), put(n.left.cuts), put(n.left.starts), put(n.left.restarts);
    put(n.left.reports);
    put_view(n.group.view);
    for (const auto& [name, r] : n.group.replicas) {
      k += name;
      put(r.incarnation), put(r.gone), put(r.status.stand), put(r.status.state_view);
      put(r.status.step), put(r.status.sums), put(r.status.finished);
    }
    put(-2), put(n.group.gather_from_ms);
    for (const SimulatedProcess& p : n.processes) {
      k += p.m.name;
      put(p.live), put(p.reported), put(p.cancelled), put(p.had), put(p.m.incarnation), put(p.m.step),
          put(p.m.state_view), put(p.m.stage);
      put(p.m.sums), put(p.m.stop), put(p.m.finished), put_view(p.m.view);
      k += p.history, put(-3);
    }
    uint64_t parts = 0;
    for (const Part& p : n.parts) {
      const char bytes[] = {static_cast<char>(p.view), static_cast<char>(p.process), static_cast<char>(p.computed),
                            static_cast<char>(p.entered), static_cast<char>(p.stop)};
      parts += io::checksum(std::string_view(bytes, sizeof bytes));  // in any order
    }
    k.append(reinterpret_cast<const char*>(&parts), sizeof parts);
    k += n.history;
    for (const ReplicaView& v : n.views) put(v.start), put(v.after);
    return io::checksum(k);
  }

  const Bounds bounds_;
  const Mutant mutant_;
  std::unordered_set<uint64_t> seen_;
  std::vector<Came> came_;
  std::string problem_;
  int64_t transitions_ = 0, events_ = 0;
};

TEST(GroupExplore, NoViolation) {
  for (const Bounds& b : g_sets) EXPECT_EQ(Explorer(b, Mutant::kNone).run(), "");
}

void expect_found(Mutant mutant, Bounds bounds, const char* text) {
  Explorer e(bounds, mutant);
  const std::string problem = e.run();
  EXPECT_NE(problem.find(text), std::string::npos) << problem;
  std::printf("found in %lld events: %s\n", static_cast<long long>(e.events()), problem.c_str());
}

TEST(GroupExplore, CommitWithoutTheAck) { expect_found(Mutant::kNoAck, {3, 2, 1, 0, 0, 0}, "I3: "); }
TEST(GroupExplore, ForgottenSums) { expect_found(Mutant::kForgetSums, {3, 2, 1, 0, 0, 0}, "I3: "); }
TEST(GroupExplore, RetryAlthoughAllHaveTheSums) {
  expect_found(Mutant::kRetryAlthoughAllHave, {3, 2, 1, 1, 0, 0}, "I1: ");
}
TEST(GroupExplore, ForgottenReports) { expect_found(Mutant::kForgetReports, {3, 2, 1, 0, 0, 0, 1}, "I7: "); }
TEST(GroupExplore, DroppedState) { expect_found(Mutant::kDropState, {2, 2, 1, 1, 0, 0}, "I4: no process"); }

}  // namespace
}  // namespace weft::control

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    weft::control::Bounds b{3, 2, 1, 2, 1, 1};
    const int given = std::sscanf(argv[i], "--bounds=%d,%d,%d,%d,%d,%d,%d", &b.replicas, &b.steps, &b.crashes, &b.cuts,
                                  &b.starts, &b.restarts, &b.reports);
    if (given != 7 && std::strcmp(argv[i], "--full") != 0) {
      std::fprintf(stderr, "group_explore_test: unknown flag %s; need --bounds=R,S,C,U,B,T,E or --full\n", argv[i]);
      return 2;
    }
    weft::control::g_sets = {b};
  }
  return RUN_ALL_TESTS();
}
