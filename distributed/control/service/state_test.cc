#include "distributed/control/service/state.h"

#include <gtest/gtest.h>

#include "framework/base/error.h"
#include "framework/base/testing/error_of.h"

namespace weft::control {
namespace {

using weft::testing::expect_has;

/// A service with members whose connections have the numbers of their ranks plus one.
class Job {
 public:
  explicit Job(uint32_t size, ServiceLimits limits = {}) : state(config_of(size, limits)) {}

  static ServiceConfig config_of(uint32_t size, ServiceLimits limits) {
    ServiceConfig c;
    c.job = "test";
    c.size = size;
    c.limits = limits;
    return c;
  }

  MemberMessage head(uint32_t rank, uint64_t sequence) {
    MemberMessage m;
    m.set_epoch(epoch);
    m.set_rank(rank);
    m.set_incarnation(100 * epoch + rank + 1);
    m.set_sequence(sequence);
    m.set_floor(floor);
    return m;
  }
  MemberMessage from(uint32_t rank) { return head(rank, ++sequence_[rank]); }
  MemberMessage join(uint32_t rank, const std::string& seed = "7") {
    MemberMessage m = head(rank, ++signal_[rank]);
    Join& j = *m.mutable_join();
    j.set_job("test");
    j.set_size(state.config.size);
    j.set_host("h" + std::to_string(rank / 2));
    j.set_pid(1000 + rank);
    Fact& f = *j.add_facts();
    f.set_name("seed");
    f.set_value(seed);
    return m;
  }
  MemberMessage beat(uint32_t rank, uint64_t step = 0, const std::string& phase = "") {
    MemberMessage m = head(rank, ++signal_[rank]);
    m.mutable_beat()->set_step(step);
    m.mutable_beat()->set_phase(phase);
    return m;
  }
  MemberMessage set(uint32_t rank, const std::string& key, const std::string& value) {
    MemberMessage m = from(rank);
    m.mutable_set()->set_key(key);
    m.mutable_set()->set_value(value);
    return m;
  }
  MemberMessage get(uint32_t rank, const std::string& key, uint64_t ms = 1000) {
    MemberMessage m = from(rank);
    m.mutable_get()->set_key(key);
    m.mutable_get()->set_wait_ms(ms);
    return m;
  }
  MemberMessage barrier(uint32_t rank, const std::string& name, uint64_t ms = 1000) {
    MemberMessage m = from(rank);
    m.mutable_barrier()->set_name(name);
    m.mutable_barrier()->set_wait_ms(ms);
    return m;
  }
  MemberMessage leave(uint32_t rank) {
    MemberMessage m = from(rank);
    m.mutable_leave();
    return m;
  }

  std::vector<Addressed> send(const MemberMessage& m, uint64_t connection = 0) {
    return run({.kind = ServiceEvent::ServiceEventKind::kMessage,
                .now_ms = now,
                .connection = connection ? connection : m.rank() + 1,
                .message = m});
  }
  std::vector<Addressed> tick(int64_t ms) {
    now += ms;
    return run({.kind = ServiceEvent::ServiceEventKind::kTick, .now_ms = now});
  }
  std::vector<Addressed> run(const ServiceEvent& e) {
    Outcome out = apply(state, e);
    changes = out.changes;
    return std::move(out.replies);
  }
  void join_all() {
    for (uint32_t rank = 0; rank < state.config.size; ++rank) send(join(rank));
    ASSERT_EQ(state.stage, ServiceState::Stage::kRunning);
  }
  std::string cause() const { return state.end.cause().text(); }

  ServiceState state;
  std::vector<Change> changes;
  int64_t now = 0;
  uint64_t epoch = 1, floor = 1;

 private:
  std::map<uint32_t, uint64_t> sequence_, signal_;
};

std::string only_failure(const std::vector<Addressed>& replies) {
  EXPECT_EQ(replies.size(), 1u);
  return replies.empty() ? "" : replies[0].message.failure().text();
}

TEST(State, World) {
  Job job(3);
  std::vector<Addressed> r = job.send(job.join(2));
  ASSERT_EQ(r.size(), 1u);
  EXPECT_EQ(r[0].message.waiting().text(), "ranks 0 and 1 of 3 have not joined");
  r = job.send(job.join(0));
  EXPECT_EQ(r[0].message.waiting().text(), "rank 1 of 3 has not joined");
  job.state.config.host = "here";
  EXPECT_EQ(job.send(job.join(0))[0].message.waiting().text(), "rank 1 of 3 (host here) has not joined");
  r = job.send(job.join(1));
  ASSERT_EQ(r.size(), 3u);
  for (const Addressed& a : r) {
    EXPECT_EQ(a.message.epoch(), 1u);
    ASSERT_EQ(a.message.world().members_size(), 3);
    EXPECT_EQ(a.message.world().members(2).pid(), 1002u);
  }
}

TEST(State, JoinsThatDoNotFit) {
  struct Row {
    std::function<MemberMessage(Job&)> join;
    const char* want;
  };
  const Row rows[] = {
      {[](Job& j) { return j.join(3, "8"); },
       "join: rank 3 (host h1, pid 1003) has seed 8 and the others have 7; need equal values on all ranks: start all "
       "with "
       "the same binary, flags and environment"},
      {[](Job& j) {
         MemberMessage m = j.join(3);
         m.mutable_join()->clear_facts();
         return m;
       },
       "join: rank 3 (host h1, pid 1003) has seed '' and the others have 7; need"},
      {[](Job& j) {
         MemberMessage m = j.join(3, "9");
         Fact& f = *m.mutable_join()->add_facts();
         f.set_name("plan");
         f.set_value("1f");
         return m;
       },
       "has seed 9 and the others have 7; rank 3 (host h1, pid 1003) has plan 1f and the others have ''; need"},
      {[](Job& j) {
         MemberMessage m = j.join(3);
         m.mutable_join()->set_size(8);
         return m;
       },
       "join: rank 3 (host h1, pid 1003) was started for a world of 8 ranks; need 4, the size of the coordination "
       "service"},
      {[](Job& j) {
         MemberMessage m = j.join(1);
         m.set_incarnation(99);
         m.mutable_join()->set_pid(77);
         return m;
       },
       "join: rank 1 was started twice: rank 1 (host h0, pid 1001) and rank 1 (host h0, pid 77); need one process for "
       "each "
       "rank"},
  };
  for (const Row& row : rows) {
    Job job(4);
    for (uint32_t rank = 0; rank < 3; ++rank) job.send(job.join(rank));
    const std::vector<Addressed> replies = job.send(row.join(job), 9);
    EXPECT_EQ(job.state.stage, ServiceState::Stage::kEnded);
    expect_has(job.cause(), row.want);
    std::set<uint64_t> told;
    for (const Addressed& a : replies)
      if (a.message.end().cause().text() == job.cause()) told.insert(a.connection);
    EXPECT_EQ(told, (std::set<uint64_t>{1, 2, 3, 9}));
    // A later member gets the same end.
    const std::vector<Addressed> late = job.send(job.join(3), 10);
    ASSERT_EQ(late.size(), 1u);
    EXPECT_EQ(late[0].message.end().cause().text(), job.cause());
  }
}

TEST(State, TwoGroupsOfFacts) {
  Job job(4);
  for (uint32_t rank = 0; rank < 4; ++rank) job.send(job.join(rank, rank < 2 ? "7" : "8"));
  expect_has(job.cause(), "ranks 2 (host h1, pid 1002) and 3 (host h1, pid 1003) have seed 8 and the others have 7");
}

TEST(State, StrangersChangeNothing) {
  Job job(2);
  job.join_all();
  job.send(job.set(0, "key", "value"));
  const std::vector<Change> before = changes_of(job.state);
  auto check = [&](const MemberMessage& m, uint64_t connection, const std::string& want) {
    const std::vector<Addressed> replies = job.send(m, connection);
    const std::string got = replies.empty() ? "nothing" : only_failure(replies);
    expect_has(got, want);
    EXPECT_TRUE(job.changes.empty());
    EXPECT_EQ(job.state.stage, ServiceState::Stage::kRunning);
    const std::vector<Change> after = changes_of(job.state);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].SerializeAsString(), before[i].SerializeAsString());
  };
  MemberMessage m = job.join(1);
  m.mutable_join()->set_job("other");
  check(m, 9, "belongs to job 'other'; this is the coordination service of job 'test'");
  m = job.join(1);
  m.set_incarnation(5);
  check(m, 9, "came when the world of 2 ranks was complete; rank 1 (host h0, pid 1001) is a member");
  m = job.join(1);
  m.set_epoch(7);
  check(m, 9, "is of epoch 7; the service is in epoch 1");
  m = job.set(0, "key", "other");
  m.set_sequence(1);  // number 1 came before
  check(m, 1, "");
  m = job.set(0, "key", "other");
  m.set_epoch(2);
  check(m, 1, "rank 0 of epoch 2 is no member");
  m = job.set(0, "key", "other");
  m.set_incarnation(3);
  check(m, 1, "is no member");
  check(job.set(0, "key", "other"), 2, "");  // came over the connection of another member
  check(job.set(0, std::string(257, 'k'), ""), 1, "a key of 257 bytes; need at most 256");
  check(job.set(0, "key", std::string((1 << 20) + 1, 'v')), 1, "a value of 1048577 bytes; need at most 1048576");
  check(job.set(0, "", "v"), 1, "a key without a name");
  check(job.get(0, "key", 1ull << 40), 1, "a wait of 1099511627776 ms");
  check(MemberMessage(), 1, "a message without an incarnation");
  m = job.set(0, "key", "other");
  m.set_sequence(1000);
  check(m, 1, "need at most 64 requests without an answer");
  m = job.set(0, "key", "other");
  m.set_floor(m.sequence() + 1);
  check(m, 1, "requests without an answer");
  ServiceEvent closed{.kind = ServiceEvent::ServiceEventKind::kClosed, .now_ms = 0, .connection = 77};
  EXPECT_TRUE(job.run(closed).empty());
}

TEST(State, Keys) {
  Job job(2);
  job.join_all();
  EXPECT_TRUE(job.send(job.get(0, "a")).empty());
  const MemberMessage set = job.set(1, "a", "1");
  std::vector<Addressed> r = job.send(set);
  ASSERT_EQ(r.size(), 2u);
  EXPECT_TRUE(r[0].message.has_done());
  EXPECT_EQ(r[1].connection, 1u);
  EXPECT_EQ(r[1].message.value(), "1");
  job.send(job.set(0, "a", "2"));
  r = job.send(set);  // a repeated request is answered and not executed
  ASSERT_EQ(r.size(), 1u);
  EXPECT_TRUE(r[0].message.has_done());
  EXPECT_EQ(job.state.keys.at("a"), "2");
  EXPECT_EQ(job.send(job.get(1, "a"))[0].message.value(), "2");
  EXPECT_EQ(job.state.stored_bytes, 2u);
  // A request reaches its deadline.
  job.send(job.get(1, "b", 500));
  for (int i = 0; i < 4; ++i) job.tick(100), job.send(job.beat(0)), job.send(job.beat(1));
  r = job.tick(100);
  EXPECT_EQ(only_failure(r), "get of key 'b': rank 1 (host h0, pid 1001) waited 0.5 s, and no rank has set it");
  EXPECT_TRUE(job.state.waiting.empty() && job.state.gets.empty());
}

TEST(State, Limits) {
  ServiceLimits limits;
  limits.keys = 2;
  limits.stored_bytes = 20;
  Job job(1, limits);
  job.join_all();
  EXPECT_TRUE(job.send(job.set(0, "a", "1234"))[0].message.has_done());
  EXPECT_TRUE(job.send(job.set(0, "b", "1234"))[0].message.has_done());
  expect_has(only_failure(job.send(job.set(0, "c", "1"))),
             "set of key 'c' by rank 0 (host h0, pid 1000): the coordination service has 2 keys");
  expect_has(only_failure(job.send(job.set(0, "b", std::string(15, 'x')))),
             "15 bytes more than the coordination service can keep; it has 10 of 20");
  EXPECT_TRUE(job.send(job.set(0, "b", std::string(14, 'x')))[0].message.has_done());
  // Unanswered requests are bounded; answered requests are forgotten as the floor rises.
  for (int i = 0; i < 59; ++i) job.send(job.get(0, "wanted"));
  expect_has(only_failure(job.send(job.get(0, "wanted"))), "requests without an answer");
  EXPECT_EQ(job.state.waiting.size(), 59u);
  job.floor = 65;
  job.send(job.beat(0));
  job.send(job.set(0, "a", ""));
  EXPECT_EQ(job.state.waiting.size(), 0u);
  EXPECT_EQ(job.state.members.at(0).answers.size(), 1u);
}

TEST(State, Barriers) {
  Job job(3);
  job.join_all();
  EXPECT_TRUE(job.send(job.barrier(0, "x")).empty());
  const MemberMessage second = job.barrier(1, "x");
  EXPECT_TRUE(job.send(second).empty());
  EXPECT_TRUE(job.send(second).empty());
  expect_has(only_failure(job.send(job.barrier(1, "x"))),
             "barrier 'x': rank 1 (host h0, pid 1001) entered twice at once");
  EXPECT_EQ(job.send(job.barrier(2, "x")).size(), 3u);
  EXPECT_TRUE(job.send(second)[0].message.has_done());
  // At a deadline, the error names the missing ranks. The barrier is over for this rank alone.
  EXPECT_TRUE(job.send(job.barrier(1, "x", 500)).empty());
  EXPECT_EQ(only_failure(job.tick(500)),
            "barrier 'x': rank 1 (host h0, pid 1001) waited 0.5 s for ranks 0 (host h0, pid 1000) and 2 (host h1, pid "
            "1002); need all ranks: check these ranks");
  EXPECT_TRUE(job.send(job.barrier(0, "x", 5000)).empty());
  EXPECT_TRUE(job.send(job.barrier(2, "x", 5000)).empty());
  // A barrier does not wait for a rank that has left.
  EXPECT_EQ(job.send(job.leave(1)).size(), 3u);
  job.send(job.leave(0));
  job.send(job.leave(2));
  EXPECT_TRUE(job.state.end.finished());
}

TEST(State, Deaths) {
  Job job(3);
  job.join_all();
  for (int i = 0; i < 20; ++i) {
    job.send(job.beat(0));
    job.send(job.beat(1));
    if (i < 5) job.send(job.beat(2, 17, "backward"));
    EXPECT_EQ(job.tick(100).size(), 0u);
  }
  std::vector<Addressed> r;
  for (int i = 0; i < 6 && r.empty(); ++i) {
    job.send(job.beat(0));
    job.send(job.beat(1));
    r = job.tick(100);
  }
  EXPECT_EQ(job.now, 2500);
  EXPECT_EQ(r.size(), 3u);
  EXPECT_EQ(
      job.cause(),
      "rank 2 (host h1, pid 1002) is dead or stopped: no heartbeat for 2.1 s; it was in step 17, phase backward; see "
      "its output, and whether its host ran out of memory");
  EXPECT_EQ(job.state.end.rank(), 2);
  // The first cause stays; each later message gets it.
  MemberMessage abort = job.from(0);
  abort.mutable_abort()->set_text("other");
  r = job.send(abort);
  ASSERT_EQ(r.size(), 1u);
  EXPECT_EQ(r[0].message.end().cause().text(), job.cause());
  EXPECT_EQ(job.send(job.beat(1))[0].message.end().cause().text(), job.cause());
}

TEST(State, ClosedConnection) {
  Job job(2);
  job.join_all();
  job.run({.kind = ServiceEvent::ServiceEventKind::kClosed, .now_ms = job.now, .connection = 2});
  EXPECT_TRUE(job.tick(400).empty());
  job.send(job.join(1), 5);  // a repeated join, in time
  EXPECT_TRUE(job.tick(400).empty());
  job.run(
      {.kind = ServiceEvent::ServiceEventKind::kClosed, .now_ms = job.now, .connection = 2});  // the earlier connection
  EXPECT_TRUE(job.tick(450).empty());
  job.run({.kind = ServiceEvent::ServiceEventKind::kClosed, .now_ms = job.now, .connection = 5});
  job.tick(450);
  expect_has(job.cause(), "rank 1 (host h0, pid 1001) is dead or stopped: its connection closed");
}

TEST(State, StallOfTheService) {
  Job job(2);
  job.join_all();
  EXPECT_TRUE(job.tick(10000).empty());  // the service did not run
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(job.tick(100).empty());
  EXPECT_FALSE(job.tick(100).empty());
}

TEST(State, ReportedDeaths) {
  Job job(3);
  ServiceEvent e{.kind = ServiceEvent::ServiceEventKind::kDeath, .now_ms = 0};
  e.death.set_rank(1);
  e.death.set_text("exit code 3");
  job.send(job.join(0));
  job.run(e);
  EXPECT_EQ(job.cause(), "rank 1 died before it joined: exit code 3; reported by the launcher");
  Job other(3);
  other.join_all();
  MemberMessage m = other.from(0);
  m.mutable_death()->set_rank(2);
  m.mutable_death()->set_text("its data connection ended");
  other.send(m);
  EXPECT_EQ(other.cause(),
            "rank 2 (host h1, pid 1002) died: its data connection ended; reported by rank 0 (host h0, pid 1000)");
}

TEST(State, Epochs) {
  Job job(2);
  job.join_all();
  job.send(job.set(0, "a", "1"));
  const MemberMessage old = job.set(1, "a", "2");
  job.epoch = 2;
  EXPECT_EQ(job.send(job.join(0), 11)[0].message.waiting().text(), "epoch 1 has not ended");
  job.run({.kind = ServiceEvent::ServiceEventKind::kDeath, .now_ms = 0});
  job.send(job.join(0), 11);
  EXPECT_EQ(job.state.epoch, 2u);
  EXPECT_TRUE(job.state.keys.empty());
  job.send(job.join(1), 12);
  EXPECT_EQ(job.state.stage, ServiceState::Stage::kRunning);
  expect_has(only_failure(job.send(old)), "rank 1 of epoch 1 is no member; the coordination service is in epoch 2");
  EXPECT_TRUE(job.state.keys.empty());
}

TEST(State, Restart) {
  Job job(2);
  std::vector<Change> journal;
  auto send = [&](const MemberMessage& m) {
    auto r = job.send(m);
    journal.insert(journal.end(), job.changes.begin(), job.changes.end());
    return r;
  };
  send(job.join(0));
  send(job.join(1));
  const MemberMessage set = job.set(0, "a", "1"), enter = job.barrier(0, "x");
  send(set);
  send(enter);
  send(job.barrier(1, "x"));
  send(job.barrier(1, "y"));  // this request waits when the service is killed
  auto text = [](const std::vector<Change>& changes) {
    std::string out;
    for (const Change& c : changes) out += c.SerializeAsString();
    return out;
  };
  for (const std::vector<Change>& j : {journal, changes_of(job.state)}) {
    Job again(2);
    for (const Change& c : j) EXPECT_TRUE(commit(again.state, c));
    EXPECT_EQ(text(changes_of(again.state)), text(changes_of(job.state)));
    restart(again.state, 0);
    for (int i = 0; i < 49; ++i) EXPECT_TRUE(again.tick(100).empty());
    EXPECT_TRUE(again.send(set)[0].message.has_rejoin());  // the connection is not known
    EXPECT_TRUE(again.send(again.join(0))[0].message.has_world());
    EXPECT_TRUE(again.send(set)[0].message.has_done());
    EXPECT_TRUE(again.send(enter)[0].message.has_done());
    again.tick(100);
    again.tick(100);
    expect_has(again.cause(), "rank 1 (host h0, pid 1001) is dead");
  }
}

TEST(State, RestartWithoutJournal) {
  Job job(2);
  MemberMessage m = job.join(0);
  m.mutable_join()->set_again(true);
  expect_has(only_failure(job.send(m)),
             "is a member of a world that the coordination service does not know; need its journal");
}

}  // namespace
}  // namespace weft::control
