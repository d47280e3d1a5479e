// The service of replicas and leaders over loopback, in one process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "distributed/control/client.h"
#include "distributed/control/group/group_client.h"
#include "distributed/control/group/group_server.h"
#include "distributed/control/group/replica_identity.h"
#include "distributed/control/service/job_server.h"
#include "framework/base/testing/error_of.h"

// gRPC is not instrumented: the sanitizer does not see how it hands an operation from thread to thread.
extern "C" const char* __tsan_default_suppressions() { return "race:^grpc::"; }

namespace weft::control {
namespace {

using weft::testing::error_of;
using weft::testing::expect_has;
using Kind = MemberEvent::Kind;

GroupClient::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

/// Replicas "a", "b", ... and their service.
struct Replicas {
  explicit Replicas(size_t n, GroupServerOptions o = {}) : options(std::move(o)) {
    options.token = "secret";
    options.replicas = static_cast<int64_t>(n);
    start_service();
    clients.resize(n);
    for (size_t i = 0; i < n; ++i) start(i);
  }
  void start_service() {
    server = std::make_unique<GroupServer>(options);
    options.address = server->address();
  }
  static std::string name_of(size_t i) { return std::string(1, static_cast<char>('a' + i)); }
  GroupClientOptions member_options(size_t i) const {
    return {.address = options.address, .token = "secret", .name = name_of(i)};
  }
  void start(size_t i) { clients[i] = std::make_unique<GroupClient>(member_options(i)); }
  /// Waits until all clients are in view `number`.
  void await(int64_t number) {
    for (auto& c : clients) {
      if (!c) continue;
      const MemberState m = c->await(
          [&](const MemberState& now) {
            return now.view.number >= number &&
                   (now.stage == MemberStage::kComputing || now.stage == MemberStage::kHealing);
          },
          soon());
      ASSERT_EQ(m.view.number, number);
      if (m.stage == MemberStage::kHealing) c->apply(Kind::kHealed, number);
    }
  }
  /// All members commit a step, with the stop bit of the service. A step with this bit ends the view, so a member whose
  /// ack is later than the report of another member commits by the next view.
  void commit(int64_t view) {
    bool stop = false;
    for (auto& c : clients) {
      if (!c) continue;
      EXPECT_TRUE(c->apply(Kind::kSums, view, MemberAction::kEnterAck));
      stop |= c->member().stop;
    }
    for (auto& c : clients) {
      if (!c) continue;
      EXPECT_TRUE(c->apply(Kind::kAckComplete, view, MemberAction::kCommit, stop) || stop);
    }
  }

  GroupServerOptions options;
  std::unique_ptr<GroupServer> server;
  std::vector<std::unique_ptr<GroupClient>> clients;
};

TEST(GroupService, ViewsAndTheEndOfTheRun) {
  Replicas r(3);
  r.await(1);
  r.commit(1);
  r.clients[1].reset();  // its connection ends
  r.await(2);            // without a call of the others
  EXPECT_EQ(r.server->status().view.members.size(), 2u);
  EXPECT_EQ(r.clients[0]->member().step, 1);
  r.start(1);
  for (int i = 0; i < 1000 && r.server->status().view.number == 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!r.clients[0]->member().stop || !r.clients[2]->member().stop) continue;
    auto joiner = std::move(r.clients[1]);
    r.commit(2);
    r.clients[1] = std::move(joiner);
    break;
  }
  r.await(3);
  EXPECT_EQ(r.clients[1]->member().step, 2);
  r.commit(3);
  for (auto& c : r.clients) c->apply(Kind::kFinished, 3);
  for (auto& c : r.clients) {
    const MemberState m = c->await([](const MemberState&) { return false; }, soon());
    EXPECT_EQ(m.stage, MemberStage::kEnded);
    EXPECT_EQ(m.step, 3);
  }
  EXPECT_TRUE(r.server->status().view.ended);
}

TEST(GroupService, DeathsThatALauncherReports) {
  Replicas r(3);
  r.await(1);
  const int64_t incarnation = r.clients[1]->member().incarnation;
  // Under load a report may wait for its answer for more than a second.
  bool heard = false;
  for (int i = 0; i < 30 && !heard; ++i) heard = report_death_of_replica(r.options.address, "secret", "b", incarnation);
  EXPECT_TRUE(heard);
  // The leader lives on, and sends its status.
  try {
    r.clients[1]->await([](const MemberState&) { return false; }, soon());
    ADD_FAILURE() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kAborted);  // it follows from the failure of another process
    expect_has(e.what(), "replica 'b' has ended, as its launcher has reported; need a new start of this replica");
  }
  r.clients[1].reset();
  r.await(2);
  EXPECT_EQ(r.server->status().view.members.size(), 2u);
  GroupClientOptions later = r.member_options(1);
  later.incarnation = incarnation + 1;
  GroupClient again(later);
  again.await([](const MemberState& m) { return m.accepted; }, soon());
  EXPECT_FALSE(report_death_of_replica("127.0.0.1:1", "secret", "b", 1));
}

TEST(GroupService, AMemberInDoubtGetsTheNoteOfTheStep) {
  Replicas r(2);
  r.await(1);
  GroupClient &a = *r.clients[0], &b = *r.clients[1];
  a.apply(Kind::kSums, 1, MemberAction::kEnterAck, false, 143);
  b.apply(Kind::kSums, 1, MemberAction::kEnterAck, false, 0);
  EXPECT_TRUE(a.apply(Kind::kAckComplete, 1, MemberAction::kCommit, false, 143));
  a.apply(Kind::kFinished, 1);
  b.apply(Kind::kAckFailed, 1);
  for (GroupClient* c : {&a, &b}) {
    const MemberState m = c->await([](const MemberState&) { return false; }, soon());
    EXPECT_EQ(str_cat(m.step, " ", m.group_note), "1 143");
  }
}

TEST(GroupService, ValuesOfAllMembers) {
  const std::string journal = str_cat(::testing::TempDir(), "/group_journal");
  ::unlink(journal.c_str());
  Replicas r(2, {.journal = journal});
  r.await(1);
  const auto both = [&](const std::string& a, const std::string& b) {
    std::vector<std::string> all[2];
    std::thread other([&] { all[1] = r.clients[1]->exchange(1, b, soon()); });
    all[0] = r.clients[0]->exchange(1, a, soon());
    other.join();
    EXPECT_EQ(all[0], all[1]);
    return all[0];
  };
  EXPECT_EQ(both("x", "y"), (std::vector<std::string>{"x", "y"}));
  // The service starts again between the values of the two members.
  std::vector<std::string> first;
  std::thread waits([&] { first = r.clients[0]->exchange(1, std::string(100000, 'x'), soon()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  r.server.reset();
  r.start_service();
  EXPECT_EQ(r.clients[1]->exchange(1, "", soon()), (std::vector<std::string>{std::string(100000, 'x'), ""}));
  waits.join();
  EXPECT_EQ(first.size(), 2u);
  EXPECT_EQ(r.server->status().view.number, 1);
  // A view that is over ends the wait.
  std::string over;
  std::thread alone([&] { over = error_of([&] { r.clients[0]->exchange(1, "z", soon()); }); });
  r.clients[1]->apply(Kind::kFailed, 1);
  alone.join();
  expect_has(over, "view 1 of the replicas is over");
}

TEST(GroupService, Refusals) {
  Replicas r(2);
  r.await(1);
  const auto never = [](const MemberState&) { return false; };
  const auto refusal = [&](const GroupClientOptions& o) {
    GroupClient c(o);
    return error_of([&] { c.await(never, soon()); });
  };
  GroupClientOptions wrong = r.member_options(2);
  wrong.token = "other";
  expect_has(refusal(wrong), "replica 'c' has another token than the service of replicas at 127.0.0.1:");
  wrong = r.member_options(2);
  wrong.facts = "seed 8";
  expect_has(refusal(wrong), "replica 'c' has 'seed 8' and the group has ''; need equal values");
  wrong = r.member_options(2);
  wrong.replicas = 3;
  expect_has(refusal(wrong), "replica 'c' has a mesh of 3 replicas, and the service of replicas has 2; need equal");
  JobServer job({.token = "secret", .size = 1});
  wrong = r.member_options(2);
  wrong.address = job.address();
  expect_has(refusal(wrong), "got a message of a replica; need the address of the service of replicas");
  Client client({.address = r.options.address, .token = "secret"});
  expect_has(error_of([&] { client.join(); }), "join: this is a service of replicas");
  wrong = r.member_options(2);
  wrong.name = "";
  expect_has(error_of([&] { GroupClient c(wrong); }), "got the name ''; need 1 to 256 bytes");
  GroupClient nobody({.address = "127.0.0.1:1", .token = "secret", .name = "c"});
  expect_has(error_of([&] { nobody.await(never, std::chrono::steady_clock::now() + std::chrono::milliseconds(100)); }),
             " s for the service of replicas, which does not answer at 127.0.0.1:1");
  EXPECT_EQ(r.server->status().view.number, 1);
}

TEST(GroupService, IdentityFromTheEnvironment) {
  EXPECT_FALSE(replica_identity());
  ::setenv("REPLICAS", "10.0.0.1:29600", 1);
  expect_has(error_of([] { replica_identity(); }), "REPLICA is not set; need the name of this replica in REPLICA");
  ::setenv("REPLICA_GROUP_ID", "3", 1);
  ::setenv("REPLICAS_TOKEN", "secret", 1);
  EXPECT_EQ(replica_identity()->name, "3");
  ::setenv("REPLICA", "a\nb", 1);
  expect_has(error_of([] { replica_identity(); }), "need a name without control characters");
  ::setenv("REPLICA", "a", 1);
  ::setenv(kIncarnationVariable, "12", 1);
  const ReplicaIdentity id = replica_identity().value();
  EXPECT_EQ(str_cat(id.name, " ", id.address, " ", id.token, " ", id.incarnation), "a 10.0.0.1:29600 secret 12");
  EXPECT_EQ(std::getenv("REPLICAS_TOKEN"), nullptr);
  for (const char* bad : {"12a", "0", "-3", "4611686018427387905", "99999999999999999999"}) {
    ::setenv(kIncarnationVariable, bad, 1);
    expect_has(error_of([] { replica_identity(); }),
               str_cat("got REPLICA_INCARNATION ", bad, "; need a number from 1 to 4611686018427387904"));
  }
  for (const char* bad : {"10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:95136", ":29600"}) {
    ::setenv("REPLICAS", bad, 1);
    expect_has(error_of([] { replica_identity(); }),
               str_cat("replica, REPLICAS: got address '", bad, "'; need host:port, with a port from 1 to 65535"));
  }
  for (const char* name : {"REPLICA", "REPLICAS", "REPLICA_GROUP_ID", kIncarnationVariable}) ::unsetenv(name);
}

TEST(GroupService, ALaterProcessOfAReplicaWins) {
  Replicas r(2);
  r.await(1);
  const int64_t before = r.clients[1]->member().incarnation;
  GroupClientOptions later = r.member_options(1);
  later.incarnation = 7;  // the clock of its host is behind
  auto second = std::make_unique<GroupClient>(later);
  expect_has(error_of([&] { r.clients[1]->await([](const MemberState&) { return false; }, soon()); }),
             "replica 'b' was started again; need one process for each replica");
  r.clients[1] = std::move(second);
  for (int i = 0; i < 1000 && r.clients[1]->member().stage == MemberStage::kJoining; ++i) {
    const MemberState a = r.clients[0]->member();  // it makes steps alone until the view with both
    if (a.stop && r.clients[0]->apply(Kind::kSums, a.view.number, MemberAction::kEnterAck))
      r.clients[0]->apply(Kind::kAckComplete, a.view.number, MemberAction::kCommit, true);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(r.clients[1]->member().incarnation, before + 1);
  EXPECT_EQ(r.server->status().view.members.size(), 2u);
}

}  // namespace
}  // namespace weft::control
