// Runs the shipped logic of service and members in virtual time, by seeds. Messages are lost, repeated, late, out of
// order and replayed; connections break; members crash and stop; the service restarts from its journal.
//   --schedules=N  number of schedules (100000; 5000 under sanitizers)    --seed=S  the first seed
//   --only         runs this seed alone, and prints its events
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "distributed/control/service/state.h"
#include "distributed/control/session.h"
#include "framework/base/str_cat.h"
#include "framework/base/testing/number_flags.h"

namespace weft::control {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int64_t g_schedules = 5000;
#else
int64_t g_schedules = 100000;
#endif
uint64_t g_seed = 1;
bool g_print = false;

/// The faults of one schedule.
struct Faults {
  bool calm;  // no fault that may end the job
  double loss, twice, late;
  int breaks, restarts, pauses, crashes, aborts, replays;
};

struct Counts {
  std::atomic<int64_t> worlds{0}, ended{0}, finished{0}, restarts{0}, crashes{0}, replays{0}, messages{0}, barriers{0};
};

class Simulation {
 public:
  Simulation(uint64_t seed, Counts& counts) : random_(seed * 0x9e3779b97f4a7c15u), counts_(counts) {
    size_ = 1 + below(4);
    epochs_ = 1 + (below(4) == 0);
    config_.job = "sim";
    config_.size = size_;
    faults_.calm = below(2);
    faults_.loss = faults_.calm || below(2) ? 0 : 0.15;
    faults_.twice = 0.1;
    faults_.late = 0.05;
    faults_.restarts = below(3) == 0 ? 1 + below(2) : 0;
    faults_.breaks = below(3) == 0 ? 1 + below(2) : 0;
    faults_.pauses = faults_.breaks == 0 && below(4) == 0;
    faults_.crashes = !faults_.calm && below(2) == 0;
    faults_.aborts = !faults_.calm && below(4) == 0;
    faults_.replays = below(2) ? 1 + below(6) : 0;
    last_round_ = below(2) ? static_cast<int>(below(kRounds)) : kRounds - 1;
    service_ = std::make_unique<ServiceState>(config_);
  }

  /// Runs the schedule. Returns the error, or "".
  std::string run() {
    at(0, [this] { service_tick(); });
    begin_epoch(1);
    while (!events_.empty() && problem_.empty()) {
      now_ = events_.top().time;
      auto run = std::move(const_cast<Event&>(events_.top()).run);
      events_.pop();
      run();
      if (now_ > 120000) fail("members still wait after two minutes");
      if (done()) break;
    }
    if (problem_.empty()) check_end();
    return problem_;
  }

 private:
  struct Event {
    int64_t time;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& o) const { return time != o.time ? time > o.time : order > o.order; }
  };

  struct Node {
    std::unique_ptr<Session> session;
    uint64_t connection = 0;
    bool crashed = false, over = false;
    int64_t paused_until = 0;
    int at = 0;  // position in its program
    uint64_t waits_for = 0;
    std::vector<int> entered;  // barriers entered, by kind
    bool left_begun = false;
  };

  // ---- tools ----
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool chance(double p) { return static_cast<double>(random_() % 100000) < p * 100000; }
  void at(int64_t time, std::function<void()> run) { events_.push({time, ++order_, std::move(run)}); }
  void fail(const std::string& text) {
    if (problem_.empty()) problem_ = str_cat("at ", now_, " ms: ", text);
  }
  void print(const std::string& text) {
    if (g_print) std::printf("%6lld %s\n", static_cast<long long>(now_), text.c_str());
  }
  int64_t delay() { return chance(faults_.late) ? 20 + below(faults_.calm ? 150 : 1500) : 1 + below(20); }

  /// Delivers once, twice or not at all.
  void travel(const std::function<void()>& arrive) {
    counts_.messages++;
    if (now_ < heal_ && chance(faults_.loss)) return;
    at(now_ + delay(), arrive);
    if (chance(faults_.twice)) at(now_ + delay(), arrive);
  }

  // ---- service ----
  void service_tick() {
    at(now_ + 100, [this] { service_tick(); });
    service_event({.kind = ServiceEvent::ServiceEventKind::kTick, .now_ms = now_});
  }

  void service_event(const ServiceEvent& e) {
    if (!service_) return;
    const uint64_t epoch = service_->epoch;
    Outcome out = apply(*service_, e);
    check_changes(e, epoch, out);
    journal_.insert(journal_.end(), out.changes.begin(), out.changes.end());
    if (!out.changes.empty() && crash_after_change_) {  // the journal has the change, and no member gets an answer
      crash_after_change_ = false;
      crash_service();
      return;
    }
    for (Addressed& r : out.replies) {
      const auto owner = owners_.find(r.connection);
      if (owner == owners_.end()) continue;
      Node* node = owner->second;
      travel([this, node, connection = r.connection, m = std::move(r.message)] {
        if (node->crashed || node->connection != connection) return;
        when_running(*node, [this, node, m] {
          Session::SessionOutput o;
          node->session->received(now_, m, o);
          handle(*node, o);
        });
      });
    }
  }

  void check_changes(const ServiceEvent& e, uint64_t epoch, const Outcome& out) {
    for (const Change& c : out.changes) {
      if (!c.has_stored()) continue;
      const MemberMessage& m = e.message;
      if (e.kind != ServiceEvent::ServiceEventKind::kMessage || m.epoch() != epoch)
        return fail("a key changed by another epoch");
      if (service_->members.at(m.rank()).process.incarnation() != m.incarnation())
        return fail("a key changed by a stranger");
      if (!carried_out_.insert({m.incarnation(), m.sequence()}).second)
        return fail(str_cat("request ", m.sequence(), " of rank ", m.rank(), " was carried out twice"));
    }
  }

  void crash_service() {
    if (!service_) return;
    print("the service crashes");
    counts_.restarts++;
    service_.reset();
    for (auto& n : nodes_)
      if (n->connection != 0) lose_connection(*n);
    at(now_ + 50 + below(2000), [this] {
      print("the service restarts");
      service_ = std::make_unique<ServiceState>(config_);
      for (const Change& c : journal_)
        if (!commit(*service_, c)) fail("a change of the journal does not fit");
      if (below(2)) journal_ = changes_of(*service_);
      restart(*service_, now_);
    });
  }

  // ---- members ----
  void begin_epoch(uint64_t epoch) {
    epoch_ = epoch;
    heal_ = now_ + 4000;
    for (uint32_t rank = 0; rank < size_; ++rank) {
      SessionConfig c{.job = "sim", .epoch = epoch, .rank = rank, .size = size_, .incarnation = random_() | 1};
      c.host = str_cat("host", rank / 2);
      c.pid = 100 + rank;
      c.facts = {{"plan", "1f"}, {"seed", "7"}};
      // If no messages are lost, only a new connection requires a resend.
      c.resend_ms = faults_.loss == 0 ? 1000000 : 300;
      c.join_deadline_ms = now_ + 20000;
      auto node = std::make_unique<Node>();
      node->session = std::make_unique<Session>(c);
      node->entered.resize(2);
      Node* n = node.get();
      nodes_.push_back(std::move(node));
      at(now_ + below(300), [this, n] { connect(*n); });
      at(now_ + below(50), [this, n] { tick(*n); });
    }
    live_.clear();
    for (size_t i = nodes_.size() - size_; i < nodes_.size(); ++i) live_.push_back(nodes_[i].get());
    any_crash_ = any_abort_ = false;
    Node& victim = *live_[below(size_)];
    auto soon = [this] { return now_ + below(1500); };
    for (int i = 0; i < faults_.breaks; ++i)
      at(soon(), [this, &victim] {
        if (victim.connection != 0) lose_connection(victim), print("a connection breaks");
      });
    for (int i = 0; i < faults_.restarts; ++i)
      at(soon(), [this] {
        if (below(2)) {
          crash_after_change_ = true;
        } else {
          crash_service();
        }
      });
    for (int i = 0; i < faults_.pauses; ++i) at(soon(), [this, &victim] { victim.paused_until = now_ + 1000; });
    for (int i = 0; i < faults_.crashes; ++i) at(soon(), [this, &victim] { crash(victim); });
    for (int i = 0; i < faults_.aborts; ++i) at(soon(), [this, &victim] { abort(victim); });
    for (int i = 0; i < faults_.replays; ++i) at(soon(), [this] { replay(); });
  }

  void when_running(Node& n, std::function<void()> run) {
    if (n.paused_until <= now_) return run();
    at(n.paused_until, [&n, run = std::move(run)] {
      if (!n.crashed) run();
    });
  }

  void lose_connection(Node& n) {
    const uint64_t connection = n.connection;
    n.connection = 0;
    at(now_ + 1 + below(10), [this, connection] {
      service_event({.kind = ServiceEvent::ServiceEventKind::kClosed, .now_ms = now_, .connection = connection});
    });
    if (n.crashed) return;
    n.session->closed();
    at(now_ + 1 + below(50), [this, &n] { connect(n); });
  }

  void connect(Node& n) {
    if (n.crashed || n.over || n.connection != 0) return;
    if (!service_) {
      at(now_ + 50, [this, &n] { connect(n); });
      return;
    }
    n.connection = ++connections_;
    owners_[n.connection] = &n;
    when_running(n, [this, &n, connection = n.connection] {
      if (n.connection != connection) return;
      Session::SessionOutput o;
      n.session->connected(now_, o);
      handle(n, o);
    });
  }

  void tick(Node& n) {
    if (n.crashed || n.over) return;
    at(std::max(now_ + 100, n.paused_until), [this, &n] { tick(n); });
    if (n.paused_until > now_) return;
    Session::SessionOutput o;
    n.session->tick(now_, o);
    handle(n, o);
  }

  void crash(Node& n) {
    if (n.crashed || n.over || n.left_begun) return;
    print(str_cat("rank ", n.session->config().rank, " crashes"));
    counts_.crashes++;
    any_crash_ = true;
    n.crashed = true;
    if (n.connection != 0) lose_connection(n);
  }

  void abort(Node& n) {
    if (n.crashed || n.over || n.left_begun || !n.session->world()) return;
    any_abort_ = true;
    MemberMessage m;
    m.mutable_abort()->set_text("a fault");
    Session::SessionOutput o;
    n.session->request(now_, m, now_ + 60000, o);
    handle(n, o);
  }

  /// Delivers any past message again, over any connection.
  void replay() {
    if (sent_.empty() || connections_ == 0) return;
    counts_.replays++;
    const MemberMessage m = sent_[below(static_cast<uint32_t>(sent_.size()))];
    uint64_t connection = 1 + below(static_cast<uint32_t>(connections_));
    if (const uint64_t own = live_[m.rank()]->connection; own != 0 && below(2)) connection = own;
    if (m.has_abort()) return;
    // A join over a foreign connection detaches the member's own connection until its next join. Only a sender with the
    // token and the incarnation could send it.
    if (m.has_join() && owners_[connection]->session->config().incarnation != m.incarnation()) return;
    service_event(
        {.kind = ServiceEvent::ServiceEventKind::kMessage, .now_ms = now_, .connection = connection, .message = m});
  }

  void handle(Node& n, Session::SessionOutput& o) {
    for (MemberMessage& m : o.messages) {
      if (sent_.size() < 200) sent_.push_back(m);
      if (n.connection == 0) continue;
      travel([this, connection = n.connection, m = std::move(m)] {
        service_event(
            {.kind = ServiceEvent::ServiceEventKind::kMessage, .now_ms = now_, .connection = connection, .message = m});
      });
    }
    if (const World* world = n.session->world()) check_world(n, *world);
    for (const Answer& a : o.answers)
      if (a.sequence == n.waits_for) answered(n, a);
    if (n.session->end() || n.session->left()) return over(n);
    if (n.session->world() && n.waits_for == 0) next(n);
  }

  void check_world(Node& n, const World& world) {
    if (n.at != 0 || n.waits_for != 0) return;
    const std::string bytes = world.SerializeAsString();
    const auto [at, is_new] = worlds_.try_emplace(n.session->config().epoch, bytes);
    counts_.worlds += is_new;
    if (at->second != bytes) fail("two worlds in one epoch");
    if (world.members_size() != static_cast<int>(size_)) fail("a world of another size");
  }

  void over(Node& n) {
    if (n.over) return;
    n.over = true;
    if (n.connection != 0) {
      const uint64_t connection = n.connection;
      n.connection = 0;
      at(now_ + 1, [this, connection] {
        service_event({.kind = ServiceEvent::ServiceEventKind::kClosed, .now_ms = now_, .connection = connection});
      });
    }
    const End* end = n.session->end();
    if (!end || end->finished()) return;
    const std::string cause = end->SerializeAsString();
    print(str_cat("rank ", n.session->config().rank, " gets the end: ", end->cause().text()));
    // If the service is away, each member finds out by itself.
    if (end->cause().text().find("the join reached its deadline") != std::string::npos) return;
    // Whether the member did not get the cause before the next epoch began.
    const bool late = n.session->config().epoch < epoch_;
    if (late && end->cause().text().find("is in epoch") != std::string::npos) return;
    const auto [at, is_new] = causes_.try_emplace(n.session->config().epoch, cause);
    if (at->second != cause) fail(str_cat("two causes of one end: ", end->cause().text()));
    if (faults_.calm) fail(str_cat("the job ended without a fault: ", end->cause().text()));
  }

  // ---- the program of a member: rounds of set, barrier, get of the neighbour's, barrier; then leave ----
  static constexpr int kRounds = 3, kSteps = 4;

  /// The last round of a rank: the highest rank may leave before the others.
  int rounds_of(uint32_t rank) const { return rank + 1 == size_ ? last_round_ : kRounds - 1; }
  std::string value_of(uint32_t rank, int round) {
    return str_cat("value ", rank, " of round ", std::min(round, rounds_of(rank)));
  }

  void next(Node& n) {
    const SessionConfig& c = n.session->config();
    const int round = n.at / kSteps;
    MemberMessage m;
    if (round > rounds_of(c.rank)) {
      m.mutable_leave();
      n.left_begun = true;
    } else if (n.at % kSteps == 0) {
      m.mutable_set()->set_key(str_cat("key", c.rank));
      m.mutable_set()->set_value(value_of(c.rank, round));
    } else if (n.at % kSteps == 2) {
      m.mutable_get()->set_key(str_cat("key", (c.rank + 1) % size_));
    } else {
      const int kind = n.at % kSteps == 3;
      m.mutable_barrier()->set_name(kind ? "read" : "written");
      ++n.entered[kind];
    }
    Session::SessionOutput o;
    n.waits_for = n.session->request(now_, m, now_ + 100000, o);
    handle(n, o);
  }

  void answered(Node& n, const Answer& a) {
    n.waits_for = 0;
    if (a.failure.code() != 0) {
      if (!n.session->end()) fail(str_cat("a request failed: ", a.failure.text()));
      return;
    }
    if (n.session->end()) return;
    const int round = n.at / kSteps;
    const uint32_t rank = n.session->config().rank;
    if (n.left_begun) return;
    if (n.at % kSteps == 2 && a.value != value_of((rank + 1) % size_, round))
      fail(str_cat("rank ", rank, " got '", a.value, "' in round ", round));
    if (n.at % 2 == 1) {
      counts_.barriers++;
      const int kind = n.at % kSteps == 3;
      for (const auto& other : nodes_)
        if (other->session->config().epoch == n.session->config().epoch && !other->left_begun &&
            other->entered[kind] < n.entered[kind])
          fail(str_cat("rank ", rank, " passed a barrier that rank ", other->session->config().rank,
                       " has not entered"));
    }
    ++n.at;
  }

  // ---- the end ----
  bool done() {
    for (const Node* n : live_)
      if (!n->over && !n->crashed) return false;
    const bool again = any_crash_ || any_abort_ || causes_.count(epoch_);
    if (epoch_ >= epochs_ || !again || !service_) return epoch_ >= epochs_ || !again;
    begin_epoch(epoch_ + 1);
    return false;
  }

  void check_end() {
    for (const Node* n : live_) {
      if (n->crashed) continue;
      const End* end = n->session->end();
      // The last members may have left before another one crashed.
      if (any_crash_ && !end && !n->session->left()) fail("a death was not reported to a member");
      if (end && !end->finished()) {
        counts_.ended++;
      } else {
        counts_.finished++;
      }
    }
  }

  std::mt19937_64 random_;
  Counts& counts_;
  Faults faults_;
  ServiceConfig config_;
  uint32_t size_;
  uint64_t epochs_, epoch_ = 0;
  std::priority_queue<Event> events_;
  uint64_t order_ = 0, connections_ = 0;
  int64_t now_ = 0, heal_ = 0;
  std::unique_ptr<ServiceState> service_;
  std::vector<Change> journal_;
  int last_round_;
  bool crash_after_change_ = false, any_crash_ = false, any_abort_ = false;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Node*> live_;  // members of the latest epoch
  std::map<uint64_t, Node*> owners_;
  std::vector<MemberMessage> sent_;
  std::map<uint64_t, std::string> worlds_, causes_;
  std::set<std::pair<uint64_t, uint64_t>> carried_out_;
  std::string problem_;
};

TEST(Simulate, Schedules) {
  Counts counts;
  std::atomic<int64_t> next{0}, failed{0};
  auto work = [&] {
    for (int64_t i = next++; i < g_schedules && failed < 3; i = next++) {
      const uint64_t seed = g_seed + static_cast<uint64_t>(i);
      const std::string problem = Simulation(seed, counts).run();
      if (problem.empty()) continue;
      ++failed;
      ADD_FAILURE() << "--seed=" << seed << " --only: " << problem;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < (g_print ? 1 : 2); ++i) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  std::printf(
      "%lld schedules, %lld messages: %lld worlds, %lld barriers passed, %lld replays, %lld restarts, %lld crashes; "
      "members: %lld finished, %lld got the cause\n",
      static_cast<long long>(g_schedules), static_cast<long long>(counts.messages),
      static_cast<long long>(counts.worlds), static_cast<long long>(counts.barriers),
      static_cast<long long>(counts.replays), static_cast<long long>(counts.restarts),
      static_cast<long long>(counts.crashes), static_cast<long long>(counts.finished),
      static_cast<long long>(counts.ended));
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
