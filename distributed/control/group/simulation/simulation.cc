#include "distributed/control/group/simulation/simulation.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <set>
#include <thread>

#include "distributed/control/group/group.h"
#include "distributed/control/group/member.h"
#include "framework/base/str_cat.h"

namespace weft::control {
namespace {

constexpr int64_t GroupCounts::*kCounts[] = {
    &GroupCounts::commits,      &GroupCounts::retries,  &GroupCounts::doubts,   &GroupCounts::heals,
    &GroupCounts::failed_heals, &GroupCounts::views,    &GroupCounts::fenced,   &GroupCounts::messages,
    &GroupCounts::crashes,      &GroupCounts::lived_on, &GroupCounts::restarts, &GroupCounts::begun_again};

uint64_t mixed(uint64_t a, uint64_t b) {
  a = (a ^ b) * 0x9e3779b97f4a7c15u;
  return a ^ (a >> 29);
}

/// The state of a model, which the committed steps determine.
struct ModelState {
  uint64_t bits = 1;
  int64_t step = 0;
  int64_t view = 0;  // the view that committed the latest step
};

class GroupSimulation {
 public:
  GroupSimulation(const GroupSchedule& s, bool log) : s_(s), random_(s.random), log_(log) {
    service_ = std::make_unique<GroupState>(GroupState{.config = s_.config});
  }

  GroupRun run() {
    at(0, [this] { service_tick(); });
    for (size_t i = 0; i < s_.starts.size(); ++i) at(s_.starts[i], [this, i] { start(static_cast<int64_t>(i)); });
    for (const GroupFault& f : s_.faults) at(f.at, [this, kind = f.kind] { fault(kind); });
    while (!events_.empty() && run_.problem.empty() && !done() && now_ <= s_.limit) {
      now_ = events_.top().time;
      auto run = std::move(const_cast<Event&>(events_.top()).run);
      events_.pop();
      run();
    }
    if (now_ > s_.limit && !s_.cut_at_limit) fail(str_cat("replicas have not ended after ", s_.limit, " ms"));
    run_.ended = now_;
    run_.progress.emplace_back(watched_, watched_parts_);
    if (!committed_.empty()) {
      const auto& [id, last] = *committed_.rbegin();
      run_.steps = id.second + 1;
      run_.parts = last.next_part;
    }
    run_.lost = static_cast<int64_t>(committed_.size()) - run_.steps +
                std::ranges::count_if(lost_, [&](const auto& step) { return !committed_.contains(step); });
    return std::move(run_);
  }

 private:
  struct Event {
    int64_t time;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& o) const { return time != o.time ? time > o.time : order > o.order; }
  };

  struct Replica {
    MemberState m;
    ModelState model;
    bool dead = false;
    uint64_t connection = 0;
    int64_t paused_until = 0;
    bool drops_out = false;                    // it leaves for ever
    bool lives_on = false;                     // its end was reported, and follows soon
    std::pair<int64_t, int64_t> begun{0, -1};  // the view and the step that it computes, from begun_at on
    int64_t begun_at = 0;
  };

  /// The collectives of a view.
  struct Groups {
    std::set<size_t> closed;  // processes that ended their part
    struct Meeting {
      std::set<size_t> in;
      bool stop = false;
    };
    std::map<std::pair<int64_t, bool>, Meeting> meetings;  // the key is the step, and whether it is the ack
  };

  // ---- tools ----
  size_t below(size_t n) { return random_() % n; }
  int64_t drawn(TimeRange r) { return r.least + (r.count > 1 ? static_cast<int64_t>(below(r.count)) : 0); }
  bool chance(double p) { return static_cast<double>(random_() % 100000) < p * 100000; }
  void at(int64_t time, std::function<void()> run) { events_.push({time, ++order_, std::move(run)}); }
  void fail(const std::string& text) {
    if (run_.problem.empty()) run_.problem = str_cat("at ", now_, " ms: ", text);
    print(text);
  }
  void print(const std::string& text) {
    if (log_) run_.log.push_back(str_cat(now_, " ms: ", text));
  }
  static std::string name_of(const Replica& r) { return str_cat(r.m.name, ".", r.m.incarnation); }
  void travel(const std::function<void()>& arrive) {
    run_.counts.messages++;
    const auto delay = [&] { return drawn(chance(s_.late) ? s_.late_message : s_.message); };
    if (now_ < s_.loss_until && chance(s_.loss)) return;
    at(now_ + delay(), arrive);
    if (chance(s_.twice)) at(now_ + delay(), arrive);
  }
  /// A live process.
  size_t any() {
    std::vector<size_t> live;
    for (size_t i = 0; i < replicas_.size(); ++i)
      if (!replicas_[i]->dead) live.push_back(i);
    return live.empty() ? 0 : live[below(live.size())];
  }
  void when_running(size_t i, const std::function<void()>& run) {
    const int64_t until = replicas_[i]->paused_until;
    if (until <= now_) return run();
    at(until, [this, i, run] {
      if (!replicas_[i]->dead) when_running(i, run);
    });
  }

  // ---- service ----
  void service_tick() {
    at(now_ + 50, [this] { service_tick(); });
    service_event({.kind = GroupEvent::Kind::kTick});
  }

  void service_event(GroupEvent e) {
    if (!service_) return;
    e.now_ms = now_;
    if (e.kind == GroupEvent::Kind::kDeath) reported_.insert({e.status.name, e.status.incarnation});
    const bool held = has_holder(e);
    GroupOutcome out = apply(*service_, e);
    for (const ReplicaView& v : out.views) new_view(v, held);
    if (!out.views.empty() && s_.service_dies_with_view > 0 && chance(s_.service_dies_with_view))
      return crash_service();
    for (auto& [connection, status] : out.replies) {
      const auto owner = owners_.find(connection);
      if (owner == owners_.end()) continue;
      travel([this, i = owner->second, connection = connection, status = std::move(status)] {
        if (replicas_[i]->dead || replicas_[i]->connection != connection) return;
        when_running(i, [this, i, status] { drive(i, {.kind = MemberEvent::Kind::kStatus, .status = status}); });
      });
    }
  }

  /// Whether the service knows a member with the state after this event.
  bool has_holder(const GroupEvent& e) const {
    const auto holds = [&](const ReplicaStatus& s) {
      return s.stand == ReplicaStatus::Stand::kReports && s.state_view == s.view;
    };
    for (const auto& [name, r] : service_->replicas)
      if (!r.gone && holds(r.status) && !(e.kind == GroupEvent::Kind::kDeath && e.status.name == name)) return true;
    return e.kind == GroupEvent::Kind::kStatus && holds(e.status) && e.status.view == service_->view.number &&
           !reported_.count({e.status.name, e.status.incarnation});
  }

  void new_view(const ReplicaView& v, bool held) {
    run_.counts.views++;
    journal_.push_back(record_of(v));
    views_.push_back(v);
    histories_[v.number] = history_of(views_, v.number);
    std::string members;
    for (const ViewMember& m : v.members) members += str_cat(" ", m.name, ".", m.incarnation, m.heals ? " heals" : "");
    print(str_cat("view ", v.number, " starts at ", v.start, ":", members));
    for (const ViewMember& m : v.members)
      if (reported_.count({m.name, m.incarnation}))
        fail(str_cat("I7: view ", v.number, " has process ", m.name, ".", m.incarnation, ", whose end was reported"));
    if (held) held_.insert(v.number);
    ended_ |= v.ended && v.start == s_.steps;
    for (const auto& [id, committed] : committed_) check_fork(v, id.first, id.second);
    for (const auto& r : replicas_)
      if (!r->dead && !r->lives_on && r->m.step > v.start && r->m.state_view >= v.after && !stops_)
        fail(str_cat("I1: steps of ", name_of(*r), ", which lives, are cancelled"));
    run_.counts.begun_again += !held && v.number > 1;
  }

  /// Whether a view repeats a step that the view before it has committed.
  void check_fork(const ReplicaView& v, int64_t view, int64_t step) {
    if (v.after == view && v.start <= step && held_.count(v.number))
      fail(str_cat("I1: view ", v.number, " makes step ", step, " again, which view ", view, " committed"));
  }

  void crash_service() {
    if (!service_) return;
    print("the service crashes");
    run_.counts.restarts++;
    service_.reset();
    reported_.clear();  // the service forgets them
    ++service_starts_;
    for (size_t i = 0; i < replicas_.size(); ++i) lose_connection(i);
    at(now_ + drawn(s_.start_again), [this] {
      print("the service restarts");
      service_ = std::make_unique<GroupState>(GroupState{.config = s_.config});
      for (const std::string& record : journal_)
        if (const std::string problem = commit(*service_, record); !problem.empty()) fail(problem);
      restart(*service_, now_);
    });
  }

  // ---- processes ----
  void fault(GroupFault::Kind kind) {
    switch (kind) {
      case GroupFault::Kind::kCrash:
        return crash(any());
      case GroupFault::Kind::kStop:
        return stop(any());
      case GroupFault::Kind::kCut:
        return cut(any());
      case GroupFault::Kind::kBreak:
        return lose_connection(any());
      case GroupFault::Kind::kService:
        return crash_service();
      case GroupFault::Kind::kLeave:
        return leave(any());
    }
  }

  void start(int64_t slot) {
    auto r = std::make_unique<Replica>();
    r->m = {.name = str_cat("r", slot), .incarnation = 100 * ++starts_[slot], .facts = "plan 1f\nseed 7"};
    r->model = checkpoint_;
    r->m.step = checkpoint_.step;
    r->m.state_view = checkpoint_.view;
    replicas_.push_back(std::move(r));
    const size_t i = replicas_.size() - 1;
    print(str_cat(name_of(*replicas_[i]), " starts from step ", replicas_[i]->m.step));
    connect(i);
    beat(i);
  }

  void beat(size_t i) {
    Replica& r = *replicas_[i];
    if (r.dead) return;
    at(std::max(now_ + 200, r.paused_until), [this, i] { beat(i); });
    if (r.paused_until <= now_) send(i);
  }

  void send(size_t i) {
    Replica& r = *replicas_[i];
    if (r.connection == 0) return;
    travel([this, connection = r.connection, start = service_starts_, status = status_of(r.m)] {
      if (start != service_starts_) return;
      service_event({.kind = GroupEvent::Kind::kStatus, .connection = connection, .status = status});
    });
  }

  void connect(size_t i) {
    Replica& r = *replicas_[i];
    if (r.dead || r.connection != 0) return;
    if (!service_ || r.paused_until > now_) {
      at(now_ + 50, [this, i] { connect(i); });
      return;
    }
    r.connection = ++connections_;
    owners_[r.connection] = i;
    send(i);
  }

  void lose_connection(size_t i) {
    if (i >= replicas_.size()) return;
    Replica& r = *replicas_[i];
    if (r.connection == 0) return;
    const uint64_t connection = r.connection;
    r.connection = 0;
    at(now_ + drawn(s_.closed), [this, connection, start = service_starts_] {
      if (start == service_starts_) service_event({.kind = GroupEvent::Kind::kClosed, .connection = connection});
    });
    if (!r.dead) at(now_ + drawn(s_.connect_again), [this, i] { connect(i); });
  }

  void end(size_t i) {
    Replica& r = *replicas_[i];
    if (r.dead) return;
    r.dead = true;
    lose_connection(i);
    close(i, r.m.view.number);
  }

  void crash(size_t i) {
    if (i >= replicas_.size() || replicas_[i]->dead || replicas_[i]->lives_on) return;
    Replica& r = *replicas_[i];
    print(str_cat(name_of(r), " crashes"));
    run_.counts.crashes++;
    const bool is_reported = chance(s_.reported), lives_on = is_reported && chance(s_.lives_on);
    if (is_reported)
      at(now_ + drawn(s_.death_report),
         [this, status = status_of(r.m)] { service_event({.kind = GroupEvent::Kind::kDeath, .status = status}); });
    const auto ends = [this, i] {  // the launcher waits for the end before it starts the next process
      end(i);
      again(*replicas_[i]);
    };
    if (!lives_on) return ends();
    r.lives_on = true;
    run_.counts.lived_on++;
    at(now_ + below(1000), ends);
  }

  /// The launcher starts a new process of a replica.
  void again(const Replica& r) {
    if (r.drops_out) return;
    at(now_ + drawn(s_.start_again), [this, slot = std::stoll(r.m.name.substr(1))] { start(slot); });
  }

  void stop(size_t i) {
    if (i >= replicas_.size() || replicas_[i]->dead) return;
    Replica& r = *replicas_[i];
    print(str_cat(name_of(r), " stops"));
    stops_ = true;
    r.paused_until = now_ + s_.stops[below(s_.stops.size())];
    if (s_.stopped_process_is_replaced && !replaced_) replaced_ = true, again(r);
  }

  void cut(size_t i) {
    if (i >= replicas_.size()) return;
    print(str_cat(name_of(*replicas_[i]), " is cut off"));
    fail_in(i, replicas_[i]->m.view.number);
  }

  void leave(size_t i) {
    if (i >= replicas_.size() || replicas_[i]->dead) return;
    print(str_cat(name_of(*replicas_[i]), " leaves"));
    replicas_[i]->drops_out = true;
    when_running(i, [this, i] { drive(i, {.kind = MemberEvent::Kind::kLeave}); });
  }

  // ---- the driver of a leader ----
  bool takes_part(const Replica& r) const {
    return !r.dead && (r.m.stage == MemberStage::kHealing || r.m.stage == MemberStage::kComputing ||
                       r.m.stage == MemberStage::kAck);
  }

  static bool has_state(const Replica& r) { return r.m.state_view == r.m.view.number; }

  void drive(size_t i, const MemberEvent& event) {
    Replica& r = *replicas_[i];
    if (r.dead) return;
    const MemberState before = r.m;
    for (MemberAction action : apply(r.m, event)) act(i, action, before, event);
    if (r.dead) return;
    const bool in_view = before.view.number == r.m.view.number;
    if (r.m.stage == MemberStage::kComputing && (!in_view || before.stage != r.m.stage || before.step != r.m.step)) {
      // A member that has healed has formed its groups before.
      const int64_t from = now_ + (in_view ? 0 : drawn(s_.form)), view = r.m.view.number, step = r.m.step;
      r.begun = {view, step};
      r.begun_at = from;
      at(from + drawn(s_.compute), [this, i, view, step] {
        when_running(i, [this, i, view, step] {
          if (step < s_.steps) return enter(i, view, step, false);
          drive(i, {.kind = MemberEvent::Kind::kFinished, .view = view});
        });
      });
    }
    if (r.m.stage == MemberStage::kJoining && before.stage != MemberStage::kJoining) run_.counts.fenced++;
    check(r);
  }

  void act(size_t i, MemberAction action, const MemberState& before, const MemberEvent& event) {
    Replica& r = *replicas_[i];
    switch (action) {
      case MemberAction::kEnterAck:
        return enter(i, r.m.view.number, r.m.step, true);
      case MemberAction::kCommit:
        run_.counts.doubts += event.kind == MemberEvent::Kind::kStatus;
        return commit_step(r, before.view);
      case MemberAction::kRetry:
        if (r.begun == std::pair(before.view.number, before.step) && now_ >= r.begun_at) lost_.insert(r.begun);
        run_.counts.retries += before.stage != MemberStage::kJoining;
        return;
      case MemberAction::kCloseGroups:
        return close(i, before.view.number);
      case MemberAction::kReport:
        return send(i);
      case MemberAction::kForm:
        if (!groups_[r.m.view.number].closed.empty()) fail_soon(i, r.m.view.number);
        return;
      case MemberAction::kHeal:
        return heal(i, r.m.view.number, drawn(s_.form) + drawn(s_.heal));
      case MemberAction::kEnd:
        print(str_cat(name_of(r), " ends ", r.m.refused));
        if (!r.m.refused.empty() && r.m.refused.find("was started again") == std::string::npos &&
            r.m.refused.find("has ended, as its launcher") == std::string::npos &&
            !r.m.refused.starts_with("the run has ended"))
          fail(r.m.refused);
        at(now_ + 20, [this, i] { end(i); });
        return;
    }
  }

  /// Enters a sum or an ack. The last member lets all through.
  void enter(size_t i, int64_t view, int64_t step, bool ack) {
    const Replica& r = *replicas_[i];
    if (!takes_part(r) || r.m.view.number != view || r.m.step != step) return;
    Groups& groups = groups_[view];
    Groups::Meeting& meeting = groups.meetings[{step, ack}];
    meeting.in.insert(i);
    if (ack) meeting.stop |= r.m.stop;
    if (!groups.closed.empty()) fail_soon(i, view);
    if (meeting.in.size() < r.m.view.members.size()) return;
    const Groups::Meeting done = std::move(meeting);
    groups.meetings.erase({step, ack});
    const auto kind = ack ? MemberEvent::Kind::kAckComplete : MemberEvent::Kind::kSums;
    for (size_t j : done.in)
      at(now_ + drawn(s_.collective), [this, j, view, step, kind, stop = done.stop] {
        when_running(j, [this, j, view, step, kind, stop] {
          if (replicas_[j]->m.step == step) drive(j, {.kind = kind, .view = view, .stop = stop});
        });
      });
  }

  void close(size_t i, int64_t view) {
    if (view == 0) return;
    groups_[view].closed.insert(i);
    for (size_t j = 0; j < replicas_.size(); ++j)
      if (j != i && !replicas_[j]->dead && replicas_[j]->m.view.number == view) fail_soon(j, view);
  }

  void fail_soon(size_t i, int64_t view) {
    at(now_ + drawn(s_.failure), [this, i, view] { when_running(i, [this, i, view] { fail_in(i, view); }); });
  }
  void fail_in(size_t i, int64_t view) {
    const bool ack = replicas_[i]->m.stage == MemberStage::kAck;
    drive(i, {.kind = ack ? MemberEvent::Kind::kAckFailed : MemberEvent::Kind::kFailed, .view = view});
  }

  /// Copies the state of a donor when all donors are in the view.
  void heal(size_t i, int64_t view, int64_t after) {
    at(now_ + after, [this, i, view] {
      when_running(i, [this, i, view] {
        Replica& r = *replicas_[i];
        if (r.m.view.number != view || r.m.stage != MemberStage::kHealing || r.dead) return;
        const Replica* donor = nullptr;
        for (const ViewMember& m : r.m.view.members) {
          if (m.heals) continue;
          const Replica* d = process_of(m);
          if (d->m.view.number < view && !d->dead) return heal(i, view, 20);  // it does not know the view yet
          if (d->m.view.number > view || !takes_part(*d)) {
            run_.counts.failed_heals++;
            return fail_in(i, view);
          }
          donor = d;
        }
        if (donor->m.step != r.m.view.start) fail("I2: a donor is in another step");
        run_.counts.heals++;
        r.model = donor->model;
        drive(i, {.kind = MemberEvent::Kind::kHealed, .view = view});
      });
    });
  }

  const Replica* process_of(const ViewMember& m) const {
    for (const auto& r : replicas_)
      if (r->m.name == m.name && r->m.incarnation == m.incarnation) return r.get();
    return nullptr;
  }

  void commit_step(Replica& r, const ReplicaView& view) {
    const int64_t step = r.model.step++;
    const int64_t first = parts_before(histories_.at(view.number), step);
    const auto before = committed_.find({r.model.view, step - 1});
    const int64_t next = before == committed_.end() ? 0 : before->second.next_part;
    if (next != first) fail(str_cat("I5: step ", step, " begins at part ", first, " of the data, not ", next));
    r.model.view = view.number;
    for (size_t p = 0; p < view.members.size(); ++p)
      r.model.bits = mixed(r.model.bits, static_cast<uint64_t>(first) + p);
    run_.counts.commits++;
    const auto [at, is_new] = committed_.try_emplace(
        {view.number, step}, Committed{r.model.bits, first + static_cast<int64_t>(view.members.size())});
    if (is_new) watch(view, step, at->second.next_part);
    if (at->second.bits != r.model.bits) fail(str_cat("I6: ", name_of(r), " has other bits after step ", step));
    for (const ReplicaView& v : views_) check_fork(v, view.number, step);
    if (view.members[0].name == r.m.name && step % 4 == 3) checkpoint_ = r.model;
  }

  /// Notes when the run made a step.
  void watch(const ReplicaView& view, int64_t step, int64_t parts) {
    const bool is_first = watched_view_ != view.number;
    if (is_first) run_.progress.insert(run_.progress.end(), {{watched_, watched_parts_}, {now_, parts}});
    if (step > 0) {
      const bool heals = is_first && std::ranges::any_of(view.members, &ViewMember::heals);
      int64_t& longest = heals ? run_.longest_of_heal : run_.longest;
      longest = std::max(longest, now_ - watched_);
    }
    watched_ = now_;
    watched_view_ = view.number;
    watched_parts_ = parts;
  }

  void check(const Replica& r) {
    if (r.m.step != r.model.step) fail("I1: a step without its state");
    if (!takes_part(r) || !has_state(r)) return;
    for (const auto& q : replicas_)
      if (takes_part(*q) && has_state(*q) && q->m.view.number == r.m.view.number && std::abs(q->m.step - r.m.step) > 1)
        fail("I2: two members are two steps apart");
  }

  /// Whether the run has ended after the last step, and so have all live replicas. A process that was started after
  /// that, with the last checkpoint, could continue the run: it waits, and so do others if they are too few with it.
  bool done() const {
    if (!ended_) return false;
    int64_t live = 0, at_end = 0;
    for (const auto& r : replicas_) {
      if (r->dead) continue;
      if (r->m.stage != MemberStage::kJoining) return false;
      ++live;
      at_end += r->m.step == s_.steps;
    }
    return at_end == live || (at_end > 0 && live < s_.config.replicas_min);
  }

  struct Committed {
    uint64_t bits;
    int64_t next_part;  // the first part of the data after the step
  };

  const GroupSchedule& s_;
  std::mt19937_64 random_;
  const bool log_;
  GroupRun run_;
  std::priority_queue<Event> events_;
  uint64_t order_ = 0, connections_ = 0;
  int64_t now_ = 0;
  std::unique_ptr<GroupState> service_;
  int64_t service_starts_ = 0;
  std::vector<std::string> journal_;
  std::vector<ReplicaView> views_;
  std::map<int64_t, std::vector<ReplicaView>> histories_;  // the keys are numbers of views
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::map<int64_t, int64_t> starts_;  // the number of starts of each replica
  std::map<uint64_t, size_t> owners_;
  std::map<int64_t, Groups> groups_;
  std::map<std::pair<int64_t, int64_t>, Committed> committed_;  // the keys are view and step
  std::set<int64_t> held_;                                      // views that were made of members with the state
  std::set<std::pair<std::string, int64_t>> reported_;          // processes whose end the service has heard
  ModelState checkpoint_;
  std::set<std::pair<int64_t, int64_t>> lost_;                  // views and steps that members began and dropped
  int64_t watched_ = 0, watched_view_ = 0, watched_parts_ = 0;  // time, view and parts of the latest step
  bool replaced_ = false, stops_ = false, ended_ = false;
};

}  // namespace

GroupRun simulate(const GroupSchedule& schedule, bool log) { return GroupSimulation(schedule, log).run(); }

SeedRuns simulate_seeds(uint64_t first, int64_t schedules, int threads, int64_t limit) {
  SeedRuns all{.schedules = schedules};
  std::mutex mutex;  // guards `all`
  std::atomic<int64_t> next{0}, failed{0};
  const auto work = [&] {
    for (int64_t i = next++; i < schedules && failed < 3; i = next++) {
      const uint64_t seed = first + static_cast<uint64_t>(i);
      GroupSchedule schedule = schedule_of(seed);
      schedule.limit = limit;
      GroupRun run = simulate(schedule);
      failed += !run.problem.empty();
      const std::lock_guard lock(mutex);
      if (!run.problem.empty()) all.failures.emplace_back(seed, std::move(run.problem));
      all.longest = std::max(all.longest, run.ended);
      for (int64_t GroupCounts::*count : kCounts) all.counts.*count += run.counts.*count;
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
  std::ranges::sort(all.failures);
  return all;
}

std::string text_of(const SeedRuns& r) {
  const GroupCounts& c = r.counts;
  return str_cat(r.schedules, r.schedules == 1 ? " schedule, " : " schedules, ", c.messages, " messages, ", c.crashes,
                 " deaths of replicas (", c.lived_on, " reported early), ", c.restarts, " of the service: ", c.views,
                 " views,\n", c.commits, " steps committed by members, ", c.doubts, " of them by a view; ", c.retries,
                 " retries, ", c.heals, " heals, ", c.failed_heals, " failed heals,\n", c.fenced, " fenced, ",
                 c.begun_again, " begun again; the longest took ", static_cast<double>(r.longest / 100) / 10, " s");
}

}  // namespace weft::control
