// Runs the shipped logic of service and leaders in virtual time, with up to 8 replicas. A seed gives a schedule of
// faults. Messages are lost, repeated, late and out of order. Connections break. Processes crash, stop, are cut off,
// leave, and start again, many at once, and some are spares. A crash may be reported before the process ends. The
// service restarts from its journal. Checks I1 to I7 (group_explore_test.cc), and that all live replicas commit all
// steps and end in bounded time.
//   --schedules=N  number of schedules (20000; 2000 under sanitizers)    --seed=S  the first seed
//   --only         runs this seed alone, and prints its events
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <thread>

#include "distributed/control/group/group.h"
#include "distributed/control/group/member.h"
#include "framework/base/str_cat.h"
#include "framework/base/testing/number_flags.h"

namespace weft::control {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int64_t g_schedules = 2000;
#else
int64_t g_schedules = 20000;
#endif
uint64_t g_seed = 1;
bool g_print = false;

struct GroupFaults {
  double loss, twice, late;
  int crashes, pauses, cuts, breaks, restarts, leaves;
  bool stopped_process_is_replaced;
};

struct GroupCounts {
  std::atomic<int64_t> steps{0}, retries{0}, doubts{0}, heals{0}, failed_heals{0}, views{0}, fenced{0}, messages{0},
      crashes{0}, lived_on{0}, restarts{0}, begun_again{0}, longest_ms{0};
};

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
  GroupSimulation(uint64_t seed, GroupCounts& counts) : random_(seed * 0x9e3779b97f4a7c15u), counts_(counts) {
    size_ = below(3) == 0 ? 1 + below(4) : 8;
    steps_ = 10 + below(190);
    const int64_t most = size_ > 1 && below(4) == 0 ? size_ - 1 : size_;
    config_ = {.job = "sim", .replicas = most, .replicas_min = 1 + below(2) * below(static_cast<uint32_t>(most))};
    const bool calm = below(8) == 0;
    const auto some = [&](uint32_t n) { return calm || below(2) ? 0 : static_cast<int>(1 + below(n)); };
    faults_ = {.loss = some(1) * 0.15,
               .twice = 0.1,
               .late = 0.05,
               .crashes = some(6),
               .pauses = some(2),
               .cuts = some(4),
               .breaks = some(4),
               .restarts = some(2),
               .leaves = most > 2 && some(1),
               .stopped_process_is_replaced = below(3) == 0};
    if (faults_.leaves) config_.replicas_min = std::min(config_.replicas_min, most - 1);
    service_ = std::make_unique<GroupState>(GroupState{.config = config_});
  }

  /// Runs the schedule. Returns the error, or "".
  std::string run() {
    at(0, [this] { service_tick(); });
    const int64_t spread = below(2) ? 300 : 8000;  // storms of starts, and late replicas
    for (int64_t i = 0; i < size_; ++i) at(below(static_cast<uint32_t>(spread)), [this, i] { start(i); });
    const auto soon = [this] { return static_cast<int64_t>(below(6000)); };
    for (int i = 0; i < faults_.crashes; ++i) at(soon(), [this] { crash(any()); });
    for (int i = 0; i < faults_.pauses; ++i) at(soon(), [this] { pause(any()); });
    for (int i = 0; i < faults_.cuts; ++i) at(soon(), [this] { cut(any()); });
    for (int i = 0; i < faults_.breaks; ++i) at(soon(), [this] { lose_connection(any()); });
    for (int i = 0; i < faults_.restarts; ++i) at(soon(), [this] { crash_service(); });
    for (int i = 0; i < faults_.leaves; ++i) at(soon(), [this] { leave(any()); });
    while (!events_.empty() && problem_.empty() && !done()) {
      now_ = events_.top().time;
      auto run = std::move(const_cast<Event&>(events_.top()).run);
      events_.pop();
      run();
      if (now_ > 90000) fail("replicas have not ended after 90 s");
    }
    for (int64_t most = counts_.longest_ms; now_ > most && !counts_.longest_ms.compare_exchange_weak(most, now_);) {
    }
    return problem_;
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
    bool drops_out = false;  // it leaves for ever
    bool lives_on = false;   // its end was reported, and follows soon
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
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool chance(double p) { return static_cast<double>(random_() % 100000) < p * 100000; }
  void at(int64_t time, std::function<void()> run) { events_.push({time, ++order_, std::move(run)}); }
  void fail(const std::string& text) {
    if (problem_.empty()) problem_ = str_cat("at ", now_, " ms: ", text);
    print(text);
  }
  void print(const std::string& text) {
    if (g_print) std::printf("%6lld %s\n", static_cast<long long>(now_), text.c_str());
  }
  static std::string name_of(const Replica& r) { return str_cat(r.m.name, ".", r.m.incarnation); }
  void travel(const std::function<void()>& arrive) {
    counts_.messages++;
    const auto delay = [&] { return chance(faults_.late) ? 20 + below(1000) : 1 + below(10); };
    if (now_ < 8000 && chance(faults_.loss)) return;
    at(now_ + delay(), arrive);
    if (chance(faults_.twice)) at(now_ + delay(), arrive);
  }
  /// A live process.
  size_t any() {
    std::vector<size_t> live;
    for (size_t i = 0; i < replicas_.size(); ++i)
      if (!replicas_[i]->dead) live.push_back(i);
    return live.empty() ? 0 : live[below(static_cast<uint32_t>(live.size()))];
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
    if (!out.views.empty() && faults_.restarts > 0 && chance(0.1)) return crash_service();  // before the replies
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
    counts_.views++;
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
    ended_ |= v.ended && v.start == steps_;
    for (const auto& [id, committed] : committed_) check_fork(v, id.first, id.second);
    for (const auto& r : replicas_)
      if (!r->dead && !r->lives_on && r->m.step > v.start && r->m.state_view >= v.after && faults_.pauses == 0)
        fail(str_cat("I1: steps of ", name_of(*r), ", which lives, are cancelled"));
    counts_.begun_again += !held && v.number > 1;
  }

  /// Whether a view repeats a step that the view before it has committed.
  void check_fork(const ReplicaView& v, int64_t view, int64_t step) {
    if (v.after == view && v.start <= step && held_.count(v.number))
      fail(str_cat("I1: view ", v.number, " makes step ", step, " again, which view ", view, " committed"));
  }

  void crash_service() {
    if (!service_) return;
    print("the service crashes");
    counts_.restarts++;
    service_.reset();
    reported_.clear();  // the service forgets them
    ++service_starts_;
    for (size_t i = 0; i < replicas_.size(); ++i) lose_connection(i);
    at(now_ + 50 + below(3000), [this] {
      print("the service restarts");
      service_ = std::make_unique<GroupState>(GroupState{.config = config_});
      for (const std::string& record : journal_)
        if (const std::string problem = commit(*service_, record); !problem.empty()) fail(problem);
      restart(*service_, now_);
    });
  }

  // ---- processes ----
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
    at(now_ + 1 + below(10), [this, connection, start = service_starts_] {
      if (start == service_starts_) service_event({.kind = GroupEvent::Kind::kClosed, .connection = connection});
    });
    if (!r.dead) at(now_ + 1 + below(300), [this, i] { connect(i); });
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
    counts_.crashes++;
    const bool is_reported = below(2), lives_on = is_reported && below(2);
    if (is_reported)
      at(now_ + below(5),
         [this, status = status_of(r.m)] { service_event({.kind = GroupEvent::Kind::kDeath, .status = status}); });
    again(r);
    if (!lives_on) return end(i);
    r.lives_on = true;
    counts_.lived_on++;
    at(now_ + below(1000), [this, i] { end(i); });
  }

  /// The launcher starts a new process of a replica.
  void again(const Replica& r) {
    if (r.drops_out) return;
    at(now_ + 50 + below(3000), [this, slot = std::stoll(r.m.name.substr(1))] { start(slot); });
  }

  void pause(size_t i) {
    if (i >= replicas_.size() || replicas_[i]->dead) return;
    Replica& r = *replicas_[i];
    print(str_cat(name_of(r), " stops"));
    r.paused_until = now_ + (below(2) ? 1000 : 10000);
    if (faults_.stopped_process_is_replaced && !replaced_) replaced_ = true, again(r);
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
    const bool begins = r.m.stage == MemberStage::kComputing && r.m.step < steps_;
    if (begins && (before.stage != r.m.stage || before.view.number != r.m.view.number || before.step != r.m.step))
      at(now_ + 1 + below(30), [this, i, view = r.m.view.number, step = r.m.step] {
        when_running(i, [this, i, view, step] { enter(i, view, step, false); });
      });
    if (r.m.stage == MemberStage::kComputing && r.m.step == steps_)
      at(now_ + 1 + below(30), [this, i, view = r.m.view.number] {
        when_running(i, [this, i, view] { drive(i, {.kind = MemberEvent::Kind::kFinished, .view = view}); });
      });
    if (r.m.stage == MemberStage::kJoining && before.stage != MemberStage::kJoining) counts_.fenced++;
    check(r);
  }

  void act(size_t i, MemberAction action, const MemberState& before, const MemberEvent& event) {
    Replica& r = *replicas_[i];
    switch (action) {
      case MemberAction::kEnterAck:
        return enter(i, r.m.view.number, r.m.step, true);
      case MemberAction::kCommit:
        counts_.doubts += event.kind == MemberEvent::Kind::kStatus;
        return commit_step(r, before.view);
      case MemberAction::kRetry:
        counts_.retries += before.stage != MemberStage::kJoining;
        return;
      case MemberAction::kCloseGroups:
        return close(i, before.view.number);
      case MemberAction::kReport:
        return send(i);
      case MemberAction::kForm:
        if (!groups_[r.m.view.number].closed.empty()) fail_soon(i, r.m.view.number);
        return;
      case MemberAction::kHeal:
        return heal(i, r.m.view.number, 20 + below(300));
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
    const auto kind = ack ? MemberEvent::Kind::kAckComplete : MemberEvent::Kind::kSums;
    for (size_t j : meeting.in)
      at(now_ + 1 + below(20), [this, j, view, step, kind, stop = meeting.stop] {
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
    at(now_ + 1 + below(10), [this, i, view] { when_running(i, [this, i, view] { fail_in(i, view); }); });
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
            counts_.failed_heals++;
            return fail_in(i, view);
          }
          donor = d;
        }
        if (donor->m.step != r.m.view.start) fail("I2: a donor is in another step");
        counts_.heals++;
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
    counts_.steps++;
    const auto [at, is_new] = committed_.try_emplace(
        {view.number, step}, Committed{r.model.bits, first + static_cast<int64_t>(view.members.size())});
    if (at->second.bits != r.model.bits) fail(str_cat("I6: ", name_of(r), " has other bits after step ", step));
    for (const ReplicaView& v : views_) check_fork(v, view.number, step);
    if (view.members[0].name == r.m.name && step % 4 == 3) checkpoint_ = r.model;
  }

  void check(const Replica& r) {
    if (r.m.step != r.model.step) fail("I1: a step without its state");
    if (!takes_part(r) || !has_state(r)) return;
    for (const auto& q : replicas_)
      if (takes_part(*q) && has_state(*q) && q->m.view.number == r.m.view.number && std::abs(q->m.step - r.m.step) > 1)
        fail("I2: two members are two steps apart");
  }

  /// Whether the run has ended after the last step, and so have all live replicas. A process that was started after
  /// that, with the last checkpoint, waits.
  bool done() const {
    return ended_ && std::ranges::all_of(replicas_, [&](const auto& r) {
             return r->dead || (r->m.stage == MemberStage::kJoining && r->m.step == steps_);
           });
  }

  struct Committed {
    uint64_t bits;
    int64_t next_part;  // the first part of the data after the step
  };

  std::mt19937_64 random_;
  GroupCounts& counts_;
  GroupFaults faults_;
  GroupConfig config_;
  int64_t size_, steps_;
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
  bool replaced_ = false, ended_ = false;
  std::string problem_;
};

TEST(GroupSimulate, Schedules) {
  GroupCounts counts;
  std::atomic<int64_t> next{0}, failed{0};
  const auto work = [&] {
    for (int64_t i = next++; i < g_schedules && failed < 3; i = next++) {
      const uint64_t seed = g_seed + static_cast<uint64_t>(i);
      const std::string problem = GroupSimulation(seed, counts).run();
      if (problem.empty()) continue;
      ++failed;
      ADD_FAILURE() << "--seed=" << seed << " --only: " << problem;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < (g_print ? 1 : 2); ++i) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  const auto n = [](const std::atomic<int64_t>& v) { return static_cast<long long>(v); };
  std::printf(
      "%lld schedules, %lld messages, %lld crashes (%lld reported early), %lld restarts of the service: %lld views, "
      "%lld steps committed, "
      "%lld of them by a view, %lld retries, %lld heals, %lld failed heals, %lld fenced, %lld begun again; the longest "
      "took %.1f s\n",
      static_cast<long long>(g_schedules), n(counts.messages), n(counts.crashes), n(counts.lived_on),
      n(counts.restarts), n(counts.views), n(counts.steps), n(counts.doubts), n(counts.retries), n(counts.heals),
      n(counts.failed_heals), n(counts.fenced), n(counts.begun_again), 1e-3 * static_cast<double>(counts.longest_ms));
  if (g_schedules >= 1000) {  // each path was taken
    for (const auto* c :
         {&counts.doubts, &counts.retries, &counts.heals, &counts.failed_heals, &counts.fenced, &counts.lived_on})
      EXPECT_GT(n(*c), 0);
  }
}

}  // namespace
}  // namespace weft::control

int main(int argc, char** argv) {
  using namespace weft::control;
  if (!weft::testing::read_flags(argc, argv, {{"schedules", &g_schedules}, {"seed", &g_seed}, {"only", &g_print}}))
    return 2;
  if (g_print) g_schedules = 1;
  return RUN_ALL_TESTS();
}
