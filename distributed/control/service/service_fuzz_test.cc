// Strangers, damaged frames and damaged messages do not affect a running job:
//   frames    damaged bytes of HTTP/2 and gRPC on the port, without the token and with it
//   messages  damaged and repeated messages on streams of gRPC, without the token and with it
// --inputs=N  number of inputs of each kind (10000)    --seed=S  other inputs
// --port=P    sends frames to the service of another job on this host, such as a training job, and no messages
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "distributed/control/client.h"
#include "distributed/control/control.grpc.pb.h"
#include "distributed/control/service/job_server.h"
#include "distributed/control/testing/raw_connection.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/testing/fuzz.h"

// gRPC is not instrumented: the sanitizer does not see how it hands an operation from thread to thread.
extern "C" const char* __tsan_default_suppressions() { return "race:^grpc::"; }

namespace weft::control {
namespace {

int64_t g_inputs = 10000;
uint64_t g_seed = 1;
int g_port = 0;  // 0: the port of this test's job

using testing::conversation;
using testing::frame;
using testing::kToken;
using testing::RawConnection;
using testing::send_damaged_frames;

/// Two members, which exchange keys and meet in barriers as long as this exists, and a third, raw member.
class RunningJob {
 public:
  RunningJob() : server_(JobServerOptions{.token = kToken, .job = "fuzz", .size = 3}) {
    stub_ = Coordination::NewStub(grpc::CreateChannel(server_.address(), grpc::InsecureChannelCredentials()));
    for (int64_t rank = 0; rank < 2; ++rank)
      clients_.push_back(std::make_unique<Client>(ClientOptions{.address = server_.address(),
                                                                .token = kToken,
                                                                .job = "fuzz",
                                                                .rank = rank,
                                                                .size = 3,
                                                                .facts = {{"seed", "7"}}}));
    third_ = std::thread([this] { raw_member(); });
    for (auto& c : clients_) c->join();
    clients_[0]->set("key", "value");
    for (size_t rank = 0; rank < 2; ++rank) threads_.emplace_back([this, rank] { run(*clients_[rank]); });
  }
  ~RunningJob() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
    third_.join();
  }

  int port() const { return server_.port(); }
  Coordination::Stub& stub() { return *stub_; }
  /// The messages that the third member has sent.
  std::vector<MemberMessage> sent() {
    MutexLock lock(mutex_);
    return sent_;
  }
  void check() {
    const JobServerStatus s = server_.status();
    EXPECT_EQ(s.stage, JobServerStatus::Stage::kRunning) << s.cause;
    EXPECT_EQ(s.epoch, 1u);
    EXPECT_EQ(s.keys, 1);
    EXPECT_EQ(s.members, 3);
    for (auto& c : clients_) {
      EXPECT_FALSE(c->ended().has_value());
      EXPECT_EQ(c->get("key", std::chrono::steady_clock::now() + std::chrono::seconds(20)), "value");
    }
  }
  void finish() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
    threads_.clear();
    std::printf("the job read %lld keys meanwhile, the slowest in %.1f ms\n", static_cast<long long>(reads_),
                1e-6 * static_cast<double>(slowest_));
  }

 private:
  void run(Client& c) {
    while (!stop_) {
      const int64_t begin = internal::now_ns();
      if (c.get("key", std::chrono::steady_clock::now() + std::chrono::seconds(20)) != "value") std::abort();
      const int64_t took = internal::now_ns() - begin;
      if (took > slowest_) slowest_ = took;
      ++reads_;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  /// Runs a member that keeps its sent messages.
  void raw_member() {
    grpc::ClientContext context;
    context.AddMetadata("weft-token-bin", kToken);
    auto stream = stub_->Talk(&context);
    std::thread reader([&] {
      ServiceMessage m;
      while (stream->Read(&m)) {
      }
    });
    MemberMessage m;
    m.set_epoch(1);
    m.set_rank(2);
    m.set_incarnation(4711);
    m.set_floor(1);
    uint64_t signal = 0;
    auto send = [&] {
      m.set_sequence(++signal);
      {
        MutexLock lock(mutex_);
        if (sent_.size() < 100) sent_.push_back(m);
      }
      stream->Write(m);
    };
    Join& join = *m.mutable_join();
    join.set_job("fuzz");
    join.set_size(3);
    join.set_host("raw");
    join.add_facts()->set_name("seed");
    join.mutable_facts(0)->set_value("7");
    send();
    while (!stop_) {
      m.mutable_beat()->set_step(signal);
      send();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    context.TryCancel();
    reader.join();
    stream->Finish();
  }

  JobServer server_;
  std::unique_ptr<Coordination::Stub> stub_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> reads_{0}, slowest_{0};
  Mutex mutex_;
  std::vector<MemberMessage> sent_;
  std::vector<std::thread> threads_;
  std::thread third_;
};

// ---- messages ----
void change(MemberMessage& m, weft::testing::FuzzRandom& random) {
  auto below = [&](uint64_t n) { return random() % n; };
  auto text = [&] {
    const size_t sizes[] = {0, 1, 3, 256, 257, 5000, 70000};
    return std::string(sizes[below(std::size(sizes) - (below(8) != 0))], static_cast<char>(random()));
  };
  auto number = [&]() -> uint64_t {
    const uint64_t some[] = {0, 1, 2, 3, 64, 4711, 1u << 31, ~uint64_t{0}, random()};
    return some[below(std::size(some))];
  };
  switch (below(12)) {
    case 0:
      m.set_epoch(number());
      break;
    case 1:
      m.set_rank(static_cast<uint32_t>(number()));
      break;
    case 2:
      m.set_incarnation(number());
      break;
    case 3:
      m.set_floor(number());
      break;
    case 4:
      m.mutable_set()->set_key(below(2) ? "key" : text());
      m.mutable_set()->set_value(text());
      break;
    case 5:
      m.mutable_get()->set_key(below(2) ? "key" : text());
      m.mutable_get()->set_wait_ms(number());
      break;
    case 6:
      m.mutable_barrier()->set_name(text());
      m.mutable_barrier()->set_wait_ms(number());
      break;
    case 7:
      m.mutable_abort()->set_text(text());
      break;
    case 8:
      m.mutable_death()->set_rank(static_cast<uint32_t>(number()));
      m.mutable_death()->set_text(text());
      break;
    case 9:
      m.mutable_leave();
      break;
    case 10: {
      Join& j = *m.mutable_join();
      if (below(2)) j.set_job(below(2) ? "fuzz" : text());
      j.set_size(static_cast<uint32_t>(number()));
      j.set_again(below(2));
      for (uint64_t i = below(20); i > 0; --i) j.add_endpoints(text());
      break;
    }
    case 11:
      m.clear_kind();
      break;
  }
}

TEST(ServiceFuzz, Messages) {
  if (g_port != 0) GTEST_SKIP();
  RunningJob job;
  weft::testing::FuzzRandom random(g_seed);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const int64_t per_stream = 20;
  int64_t answers = 0;
  for (int64_t i = 0; i < g_inputs; i += per_stream) {
    grpc::ClientContext context;
    const bool has_token = random() % 4 != 0;
    if (has_token) context.AddMetadata("weft-token-bin", kToken);
    if (!has_token && random() % 2) context.AddMetadata("weft-token-bin", std::string(random() % 100, 's'));
    auto stream = job.stub().Talk(&context);
    std::thread reader([&] {
      ServiceMessage m;
      while (stream->Read(&m)) ++answers;
    });
    const std::vector<MemberMessage> sent = job.sent();
    for (int64_t k = 0; k < per_stream; ++k) {
      MemberMessage m = sent[random() % sent.size()];  // one in eight stays unchanged: a replay
      const bool replay = random() % 8 == 0;
      if (!replay)
        for (uint64_t n = 1 + random() % 3; n > 0; --n) change(m, random);
      // The member itself sends a join with a new number over a new connection: this join has the incarnation, which no
      // stranger knows.
      if (!replay && m.incarnation() == 4711 && m.has_join()) m.set_incarnation(1 + random() % 1000);
      if (!stream->Write(m)) break;
    }
    stream->WritesDone();
    if (!has_token) {
      EXPECT_EQ((reader.join(), stream->Finish().error_code()), grpc::StatusCode::UNAUTHENTICATED);
    } else {
      if (random() % 2) context.TryCancel();
      reader.join();
      stream->Finish();
    }
  }
  job.check();
  std::printf("%lld messages, %lld answers\n", static_cast<long long>(g_inputs), static_cast<long long>(answers));
  job.finish();
}

// ---- frames ----
TEST(ServiceFuzz, Frames) {
  std::optional<RunningJob> job;
  if (g_port == 0) job.emplace();
  const int port = job ? job->port() : g_port;
  weft::testing::FuzzRandom random(g_seed + 1);
  MemberMessage join;
  join.set_epoch(1);
  join.set_rank(1);
  join.set_incarnation(5);
  join.set_sequence(1);
  join.mutable_join()->set_job("fuzz");
  join.mutable_join()->set_size(3);
  std::vector<std::string> seeds;
  for (bool token : {false, true}) {
    seeds.push_back(conversation(token, join.SerializeAsString()));
    seeds.push_back(conversation(token, std::string(100, '\xff')));
    seeds.push_back(conversation(token, join.SerializeAsString()) + frame(6, 0, 0, "12345678") +
                    frame(3, 0, 1, "1234"));
  }
  // The server understands undamaged frames: it refuses the token or the join.
  const std::string none = RawConnection(port, seeds[0]).read(300);
  const std::string good = RawConnection(port, seeds[3]).read(300);
  EXPECT_NE(none.find("the token is not the job's token"), none.npos);
  EXPECT_TRUE(!job || good.find("came when the world of 3 ranks was complete") != good.npos) << good;
  const int64_t sent = send_damaged_frames(port, seeds, g_inputs, random);
  if (job) job->check();
  std::printf("%lld connections, %lld bytes\n", static_cast<long long>(g_inputs), static_cast<long long>(sent));
  if (job) job->finish();
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
    } else if (std::sscanf(argv[i], "--port=%lld", &n) == 1 && n > 0 && n < 65536) {
      weft::control::g_port = static_cast<int>(n);
    } else {
      std::fprintf(stderr, "service_fuzz_test: unknown flag %s; need --inputs=N, --seed=S or --port=P\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
