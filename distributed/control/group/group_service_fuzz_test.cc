// Strangers, damaged frames and damaged messages do not affect running replicas: their view stays.
//   --inputs=N  number of inputs of each kind (10000)    --seed=S  other inputs
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "distributed/control/control.grpc.pb.h"
#include "distributed/control/group/group_client.h"
#include "distributed/control/group/group_server.h"
#include "distributed/control/testing/raw_connection.h"

// gRPC is not instrumented: the sanitizer does not see how it hands an operation from thread to thread.
extern "C" const char* __tsan_default_suppressions() { return "race:^grpc::"; }

namespace weft::control {
namespace {

using testing::conversation;
using testing::kToken;
using testing::RawConnection;
using weft::testing::FuzzRandom;

int64_t g_inputs = 10000;
uint64_t g_seed = 1;

/// Replicas "a" and "b" in view 1.
class RunningReplicas {
 public:
  RunningReplicas() : server({.token = kToken, .replicas = 2}) {
    for (const char* name : {"a", "b"})
      clients.push_back(std::make_unique<GroupClient>(
          GroupClientOptions{.address = server.address(), .token = kToken, .name = name, .facts = "seed 7"}));
    for (auto& c : clients) c->await([](const MemberState& m) { return m.stage == MemberStage::kComputing; }, soon());
  }
  static GroupClient::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

  /// The members commit a step, and still exchange values.
  void check() {
    EXPECT_EQ(server.status().view.number, 1);
    EXPECT_EQ(server.status().view.members.size(), 2u);
    for (auto& c : clients) {
      EXPECT_TRUE(c->apply(MemberEvent::Kind::kSums, 1, MemberAction::kEnterAck));
      EXPECT_TRUE(c->apply(MemberEvent::Kind::kAckComplete, 1, MemberAction::kCommit));
      EXPECT_EQ(c->member().stage, MemberStage::kComputing);
    }
    std::vector<std::string> all;
    std::thread other([&] { clients[1]->exchange(1, "y", soon()); });
    all = clients[0]->exchange(1, "x", soon());
    other.join();
    EXPECT_EQ(all, (std::vector<std::string>{"x", "y"}));
  }

  GroupServer server;
  std::vector<std::unique_ptr<GroupClient>> clients;
};

/// A message of a stranger, who knows the names of the replicas but not their incarnations.
MemberMessage message(FuzzRandom& random) {
  const auto below = [&](uint64_t n) { return random() % n; };
  const auto text = [&] {
    const size_t sizes[] = {0, 1, 3, 256, 257, 5000, 70000, 300000};
    return std::string(sizes[below(std::size(sizes) - 2 * (below(8) != 0))], static_cast<char>(random()));
  };
  const auto number = [&]() -> int64_t {
    const int64_t some[] = {0, 1, 2, -1, 1000, int64_t{1} << 50, INT64_MAX, INT64_MIN, static_cast<int64_t>(random())};
    return some[below(std::size(some))];
  };
  const bool member = below(2);
  const std::string name = member ? (below(2) ? "a" : "b") : "x" + text();
  const int64_t incarnation = member ? static_cast<int64_t>(below(1000)) - 10 : number();  // an earlier one
  MemberMessage m;
  m.set_incarnation(random());
  m.set_sequence(random());
  switch (below(6)) {
    case 0:
    case 1:
    case 2: {
      ReplicaReport& r = *m.mutable_report();
      r.set_name(name);
      r.set_incarnation(incarnation);
      r.set_view(number());
      r.set_stand(static_cast<uint32_t>(below(8) == 0 ? random() : below(5)));
      r.set_state_view(number());
      r.set_step(number());
      r.set_sums(below(2));
      r.set_finished(below(2));
      r.set_facts(below(2) ? "seed 7" : text());
      break;
    }
    case 3: {
      ReplicaCards& c = *m.mutable_cards();
      c.set_name(name);
      c.set_incarnation(incarnation);
      c.set_view(number());
      for (uint64_t i = below(12); i > 0; --i) c.add_values(text());
      break;
    }
    case 4:
      m.mutable_replica_death()->set_name(name);
      m.mutable_replica_death()->set_incarnation(member ? incarnation : number());
      break;
    case 5:
      m.mutable_get()->set_key(text());
      break;
  }
  return m;
}

TEST(GroupServiceFuzz, Messages) {
  RunningReplicas replicas;
  const auto stub =
      Coordination::NewStub(grpc::CreateChannel(replicas.server.address(), grpc::InsecureChannelCredentials()));
  FuzzRandom random(g_seed);
  int64_t answers = 0;
  for (int64_t i = 0; i < g_inputs; i += 20) {
    grpc::ClientContext context;
    const bool has_token = random() % 4 != 0;
    if (has_token) context.AddMetadata("weft-token-bin", kToken);
    auto stream = stub->Talk(&context);
    std::thread reader([&] {
      ServiceMessage m;
      while (stream->Read(&m)) ++answers;
    });
    for (int k = 0; k < 20; ++k)
      if (!stream->Write(message(random))) break;
    stream->WritesDone();
    if (has_token && random() % 2) context.TryCancel();
    reader.join();
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code() == grpc::StatusCode::UNAUTHENTICATED, !has_token);
  }
  std::printf("%lld messages, %lld answers\n", static_cast<long long>(g_inputs), static_cast<long long>(answers));
  EXPECT_GT(answers, 0);
  replicas.check();
}

TEST(GroupServiceFuzz, Frames) {
  RunningReplicas replicas;
  FuzzRandom random(g_seed + 1);
  MemberMessage join;
  join.mutable_report()->set_name("a");
  join.mutable_report()->set_incarnation(1);
  std::vector<std::string> seeds;
  for (bool token : {false, true})
    for (const std::string& bytes : {join.SerializeAsString(), std::string(100, '\xff')})
      seeds.push_back(conversation(token, bytes));
  // The server understands undamaged frames: it refuses the token or the incarnation.
  const int port = replicas.server.port();
  EXPECT_NE(RawConnection(port, seeds[0]).read(300).find("the token is not the job's token"), std::string::npos);
  EXPECT_NE(RawConnection(port, seeds[2]).read(300).find("was started again"), std::string::npos);
  const int64_t sent = testing::send_damaged_frames(port, seeds, g_inputs, random);
  std::printf("%lld connections, %lld bytes\n", static_cast<long long>(g_inputs), static_cast<long long>(sent));
  replicas.check();
}

}  // namespace
}  // namespace weft::control

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    long long n = 0;
    if (std::sscanf(argv[i], "--inputs=%lld", &n) == 1 && n > 0) {
      weft::control::g_inputs = n;
    } else if (std::sscanf(argv[i], "--seed=%lld", &n) == 1) {
      weft::control::g_seed = static_cast<uint64_t>(n);
    } else {
      std::fprintf(stderr, "group_service_fuzz_test: unknown flag %s; need --inputs=N or --seed=S\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
