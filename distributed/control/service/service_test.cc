// Server and clients over loopback, in one process and in several. The program starts itself again as a server or a
// member before gRPC has started any thread.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "distributed/control/client.h"
#include "distributed/control/service/job_server.h"
#include "distributed/control/service/token.h"
#include "framework/base/clock.h"
#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"

extern char** environ;

// gRPC is not instrumented: the sanitizer does not see how it hands an operation from thread to thread.
extern "C" const char* __tsan_default_suppressions() { return "race:^grpc::"; }

namespace weft::control {
namespace {

using std::chrono::milliseconds;
using weft::testing::error_of;
using weft::testing::expect_has;

Deadline in(int64_t ms) { return std::chrono::steady_clock::now() + milliseconds(ms); }
Ending ending(const Client& c) {
  for (int i = 0; i < 200 && !c.ended(); ++i) std::this_thread::sleep_for(milliseconds(10));
  return c.ended().value();
}
double seconds_since(int64_t ns) { return 1e-9 * static_cast<double>(internal::now_ns() - ns); }

ClientOptions member(const std::string& address, int64_t rank, int64_t size) {
  ClientOptions o{.address = address, .token = "secret", .rank = rank, .size = size, .host = "h"};
  o.phase = [] { return "forward"; };
  o.facts = {{"plan", "1f"}, {"seed", "7"}};
  o.endpoints = {str_cat("10.0.0.", rank, ":99")};
  o.timeout = milliseconds(20000);
  return o;
}

/// A server and its members, all in this process.
struct Job {
  explicit Job(int64_t n, JobServerOptions o = {}) : size(n) {
    o.token = "secret";
    o.size = n;
    server = std::make_unique<JobServer>(o);
    for (int64_t rank = 0; rank < n; ++rank)
      clients.push_back(std::make_unique<Client>(member(server->address(), rank, n)));
    for (auto& c : clients) c->join();
  }
  Client& operator[](size_t rank) { return *clients[rank]; }
  /// Calls fn(rank) on a thread for each rank.
  void on_all(const std::function<void(int64_t)>& fn) {
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < size; ++rank) threads.emplace_back([&fn, rank] { fn(rank); });
    for (std::thread& t : threads) t.join();
  }
  int64_t size;
  std::unique_ptr<JobServer> server;
  std::vector<std::unique_ptr<Client>> clients;
};

TEST(Service, AJob) {
  const int64_t start = internal::now_ns();
  Job job(4);
  std::printf("four joined in %.3f s\n", seconds_since(start));
  const std::vector<PeerRank>& peers = job[3].join();
  ASSERT_EQ(peers.size(), 4u);
  EXPECT_EQ(peers[2].rank, 2);
  EXPECT_EQ(peers[2].endpoints, std::vector<std::string>{"10.0.0.2:99"});
  const std::string big(size_t{1} << 20, 'b');
  job.on_all([&](int64_t rank) {
    Client& c = job[static_cast<size_t>(rank)];
    const int64_t next = (rank + 1) % 4;
    for (int round = 0; round < 3; ++round) {
      c.set(str_cat("k", rank), str_cat("v", rank, " ", round));
      c.barrier("written", in(10000));
      EXPECT_EQ(c.get(str_cat("k", next), in(10000)), str_cat("v", next, " ", round));
      c.barrier("read", in(10000));
    }
    if (rank == 0) c.set(std::string("any\0bytes\xff", 10), big);
    EXPECT_EQ(c.get(std::string("any\0bytes\xff", 10), in(10000)), big);
    c.progress(3);
  });
  expect_has(error_of([&] { job[0].set("k", big + "x"); }), "a value of 1048577 bytes; need at most 1048576");
  int64_t begin = internal::now_ns();
  for (int i = 0; i < 200; ++i) job[0].set("time", "x");
  std::printf("a set takes %.0f us\n", seconds_since(begin) / 200 * 1e6);
  EXPECT_EQ(job.server->status().keys, 6);
  EXPECT_EQ(job.server->status().members, 4);
  job.on_all([&](int64_t rank) { job[static_cast<size_t>(rank)].leave(); });
  EXPECT_EQ(job.server->status().stage, JobServerStatus::Stage::kEnded);
  EXPECT_EQ(job.server->status().cause, "");
  expect_has(error_of([&] { job[0].set("k", "v"); }), "rank 0 has left");
}

TEST(Service, ServesIPv6) {
  if (std::ifstream("/proc/net/if_inet6").peek() == EOF) GTEST_SKIP() << "this host has no IPv6";
  Job job(2, {.address = "[::1]:0"});
  job[0].set("k", "v");
  EXPECT_EQ(job[1].get("k", in(10000)), "v");
  // The server listens on all interfaces, and each member connects by another protocol.
  JobServer server({.address = ":0", .token = "secret", .size = 2});
  Client a(member(str_cat("127.0.0.1:", server.port()), 0, 2)), b(member(str_cat("[::1]:", server.port()), 1, 2));
  a.join(), b.join();
  a.set("k", "w");
  EXPECT_EQ(b.get("k", in(10000)), "w");
}

TEST(Service, Deadlines) {
  Job job(2);
  int64_t begin = internal::now_ns();
  expect_has(error_of([&] { job[0].get("nothing", in(300)); }), "get of key 'nothing': rank 0 (host h, pid ");
  EXPECT_LT(seconds_since(begin), 1.0);
  expect_has(error_of([&] { job[0].barrier("here", in(300)); }), "for rank 1 (host h, pid ");
  EXPECT_TRUE(error_of([&] { job[0].set("a", "b", in(2000)); }).empty());
  // Rank 1 of another job never comes.
  JobServerOptions o;
  o.token = "secret";
  o.size = 2;
  JobServer lonely(o);
  ClientOptions c = member(lonely.address(), 0, 2);
  c.timeout = milliseconds(400);
  std::vector<std::string> reports;
  c.waiting = [&](const std::string& text) { reports.push_back(text); };
  c.report_every = milliseconds(100);
  Client client(c);
  expect_has(error_of([&] { client.join(); }),
             str_cat("the join reached its deadline of 0.4 s: rank 1 of 2 has not joined the coordination service at ",
                     lonely.address()));
  EXPECT_GE(reports.size(), 2u);
  EXPECT_EQ(reports[0], str_cat("rank 1 of 2 has not joined the coordination service at ", lonely.address()));
  // A member that has failed before it joined ends the join of the others.
  ClientOptions failed = member(lonely.address(), 1, 2), waits = member(lonely.address(), 0, 2);
  JobServer told({.token = "secret", .size = 2, .host = "here"});
  failed.address = waits.address = told.address();
  failed.failure.emplace(Code::kNotFound, "no file a.txt");
  Client first(waits);
  std::string seen;
  std::thread joins([&] { seen = error_of([&] { first.join(); }); });
  Client second(failed);
  expect_has(error_of([&] { second.join(); }), " failed before it joined: no file a.txt");
  joins.join();
  expect_has(seen, "rank 1 (host h, pid ");
  expect_has(seen, ") failed before it joined: no file a.txt");
  ClientOptions nobody = member("127.0.0.1:1", 0, 2);
  nobody.timeout = milliseconds(200);
  Client other(nobody);
  expect_has(error_of([&] { other.join(); }), "the coordination service did not answer");
}

TEST(Service, ADeadlineMayBeYearsAway) {
  JobServerOptions o;
  o.token = "secret";
  o.size = 1;
  JobServer server(o);
  ClientOptions c = member(server.address(), 0, 1);
  c.timeout = std::chrono::hours(24 * 365 * 30);
  Client client(c);
  client.join();
  client.set("a", "b");
  EXPECT_EQ(client.get("a", in(c.timeout.count())), "b");
  client.barrier("here", in(c.timeout.count()));
  client.leave();
}

TEST(Service, RanksThatDiffer) {
  JobServerOptions o;
  o.token = "secret";
  o.size = 3;
  JobServer server(o);
  std::vector<std::unique_ptr<Client>> clients;
  for (int64_t rank = 0; rank < 3; ++rank) {
    ClientOptions c = member(server.address(), rank, 3);
    if (rank == 1) c.facts[1].second = "8";
    clients.push_back(std::make_unique<Client>(c));
  }
  for (auto& c : clients) {
    const std::string text = error_of([&] { c->join(); });
    expect_has(text, "join: rank 1 (host h, pid ");
    expect_has(text, "has seed 8 and the others have 7");
    EXPECT_EQ(ending(*c).rank, 1);
  }
}

TEST(Service, Tokens) {
  Job job(1);
  const uint64_t before = job.server->status().fingerprint;
  for (const char* token : {"", "secreT", "secret ", "secretsecret"}) {
    ClientOptions o = member(job.server->address(), 0, 1);
    o.token = token;
    Client c(o);
    const std::string text = error_of([&] { c.join(); });
    expect_has(text, "has another token than the coordination service at 127.0.0.1:");
    EXPECT_EQ(ending(c).code, Code::kPermissionDenied);
  }
  EXPECT_EQ(job.server->status().fingerprint, before);
  EXPECT_TRUE(same_token("a", "a"));
  EXPECT_FALSE(same_token("", "a"));
  EXPECT_FALSE(same_token("aa", "a"));
  EXPECT_FALSE(same_token("a", ""));
  EXPECT_EQ(make_token().size(), 64u);
  EXPECT_NE(make_token(), make_token());
  expect_has(error_of([] { JobServer(JobServerOptions{.address = "0.0.0.0:0"}); }), "no token, and address 0.0.0.0:0");
  const std::string path = str_cat(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp", "/token");
  io::write_file_atomic(path, " abc\n");
  ::chmod(path.c_str(), 0644);
  expect_has(error_of([&] { token_of_file(path); }), "can be read or written by other users");
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(token_of_file(path), "abc");
  ::setenv("SOME_TOKEN", "xyz\n", 1);
  EXPECT_EQ(take_token("SOME_TOKEN"), "xyz");
  EXPECT_EQ(std::getenv("SOME_TOKEN"), nullptr);
}

TEST(Service, PortInUse) {
  Job job(1);
  expect_has(error_of([&] { JobServer(JobServerOptions{.address = job.server->address()}); }),
             "cannot listen on 127.0.0.1:");
  expect_has(error_of([] { JobServer(JobServerOptions{.address = "192.0.2.1:0", .token = "t"}); }),
             "cannot listen on 192.0.2.1:0");
}

TEST(Service, Abort) {
  Job job(3);
  std::atomic<int64_t> told{0};
  job[1].on_end([&](const Ending& e) {
    told = internal::now_ns();
    EXPECT_EQ(e.rank, 2);
  });
  std::atomic<int64_t> begin{0}, thrown{0};
  std::string text;
  std::thread waits([&] {
    text = error_of([&] { job[0].barrier("x", in(20000)); });
    thrown = internal::now_ns();
  });
  std::this_thread::sleep_for(milliseconds(100));
  begin = internal::now_ns();
  job[2].abort(Code::kDataLoss, "the loss is NaN\nin step 3");
  waits.join();
  EXPECT_EQ(text, str_cat("rank 2 (host h, pid ", ::getpid(), "): the loss is NaN\\nin step 3"));
  for (int i = 0; i < 100 && told == 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  std::printf("an abort reaches a waiting rank after %.1f ms, a callback after %.1f ms\n",
              1e-6 * static_cast<double>(thrown - begin), 1e-6 * static_cast<double>(told - begin));
  EXPECT_GT(told, 0);
  EXPECT_EQ(ending(job[1]).code, Code::kDataLoss);
  job[1].abort(Code::kInternal, "later");  // the first cause stays
  EXPECT_EQ(error_of([&] { job[1].get("a", in(1000)); }), text);
  job[0].leave();
}

TEST(Service, DeathByClosedConnection) {
  Job job(3);
  job[2].progress(12);
  std::this_thread::sleep_for(milliseconds(500));  // longer than a heartbeat
  const int64_t begin = internal::now_ns();
  job.clients[2].reset();
  const std::string text = error_of([&] { job[0].barrier("x", in(20000)); });
  std::printf("a death by a closed connection is known after %.2f s\n", seconds_since(begin));
  expect_has(text, "rank 2 (host h, pid ");
  expect_has(text, "its connection closed, and it did not connect again; it was in step 12, phase forward");
  EXPECT_EQ(ending(job[1]).rank, 2);
}

TEST(Service, SilenceOfAServiceInARankIsItsDeath) {
  auto server = std::make_unique<JobServer>(JobServerOptions{.token = "secret", .size = 2});
  std::vector<std::unique_ptr<Client>> clients;
  for (int64_t rank = 0; rank < 2; ++rank) {
    ClientOptions o = member(server->address(), rank, 2);
    o.service_rank = 0;
    clients.push_back(std::make_unique<Client>(o));
  }
  for (auto& c : clients) c->join();
  std::this_thread::sleep_for(milliseconds(2500));
  EXPECT_FALSE(clients[1]->ended());  // heartbeats are answered
  server.reset();
  const std::string text = error_of([&] { clients[1]->barrier("x", in(20000)); });
  expect_has(text, "rank 0 (host h, pid ");
  expect_has(text, " is dead or stopped: its coordination service has not answered for ");
  EXPECT_EQ(ending(*clients[1]).rank, 0);
}

TEST(Service, ReportOfADeath) {
  Job job(3);
  job.server->report_death(1, "killed by signal 9 (out of memory)");
  expect_has(error_of([&] { job[0].get("x", in(20000)); }),
             "died: killed by signal 9 (out of memory); reported by the launcher");
  Job other(2);
  other[0].report_death(1, "its data connection ended");
  expect_has(ending(other[0]).text, "died: its data connection ended; reported by rank 0 (host h");
}

TEST(Service, RestartInOneProcess) {
  const std::string journal = str_cat(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp", "/journal");
  ::unlink(journal.c_str());
  JobServerOptions o;
  o.journal = journal;
  Job job(2, o);
  o = {.address = job.server->address(), .token = "secret", .size = 2, .journal = journal};
  expect_has(error_of([&] { JobServer(JobServerOptions{.token = "secret", .size = 2, .journal = journal}); }),
             "is in use by another");
  job[0].set("a", "1");
  std::string got;
  std::thread waits([&] { got = job[1].get("b", in(20000)); });
  std::this_thread::sleep_for(milliseconds(100));
  const uint64_t before = job.server->status().fingerprint;
  job.server.reset();
  expect_has(error_of([&] { job[0].set("c", "1", in(0)); }), "for the coordination service, which did not answer");
  job.server = std::make_unique<JobServer>(o);
  EXPECT_EQ(job.server->status().fingerprint, before);
  const int64_t begin = internal::now_ns();
  EXPECT_EQ(job[1].get("a", in(20000)), "1");
  std::printf("after a restart a request takes %.2f s\n", seconds_since(begin));
  job[0].set("b", "2");
  waits.join();
  EXPECT_EQ(got, "2");
  std::this_thread::sleep_for(milliseconds(2500));
  job.on_all([&](int64_t rank) { job[static_cast<size_t>(rank)].barrier("x", in(20000)); });
  EXPECT_EQ(job.server->status().stage, JobServerStatus::Stage::kRunning);
  // The service refuses another job's journal and a damaged journal.
  job.server.reset();
  expect_has(error_of([&] { JobServer(JobServerOptions{.token = "secret", .size = 3, .journal = journal}); }),
             "2 ranks'; need 'weft");
  std::string bytes = io::read_file(journal);
  io::write_file_atomic(journal, bytes.substr(0, bytes.size() - 3));  // the last record is incomplete
  job.server = std::make_unique<JobServer>(o);
  io::write_file_atomic(journal + "2",
                        "this is a text of some other program, and longer than a journal's first record is");
  expect_has(error_of([&] { JobServer(JobServerOptions{.token = "secret", .journal = journal + "2"}); }),
             "is no journal");
}

int64_t entries_of(const char* folder) {
  int64_t n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(folder)) ++n;
  return n;
}

TEST(Service, ThreadsAndFiles) {
  { Job warm(1); }
  const int64_t threads = entries_of("/proc/self/task"), files = entries_of("/proc/self/fd");
  {
    Job job(4);
    std::printf("threads: %lld, with a server and 4 clients %lld; files: %lld, %lld\n", static_cast<long long>(threads),
                static_cast<long long>(entries_of("/proc/self/task")), static_cast<long long>(files),
                static_cast<long long>(entries_of("/proc/self/fd")));
    // Five threads are our own; gRPC starts some for each core.
    EXPECT_LE(entries_of("/proc/self/task"), threads + 5 + 8 + 4 * std::thread::hardware_concurrency());
    EXPECT_LE(entries_of("/proc/self/fd"), files + 40);
    std::this_thread::sleep_for(milliseconds(300));
  }
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_LE(entries_of("/proc/self/task"), threads + 4);
  EXPECT_LE(entries_of("/proc/self/fd"), files + 4);
}

// ---- several processes ----
pid_t start(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"/proc/self/exe"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& a : all) argv.push_back(a.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  EXPECT_EQ(::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ), 0);
  return pid;
}

int end_of(pid_t pid, int signal = 0) {
  int status = 0;
  if (signal) ::kill(pid, signal);
  ::waitpid(pid, &status, 0);
  return status;
}

int free_port() {
  JobServer s(JobServerOptions{});
  return s.port();
}

TEST(Processes, KilledServiceAndMembers) {
  const std::string folder = std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp";
  const std::string journal = folder + "/journal_of_process", address = str_cat("127.0.0.1:", free_port());
  ::unlink(journal.c_str());
  pid_t server = start({"--server", address, "3", journal});
  const pid_t child = start({"--member", address, "2", "3"});
  Client a(member(address, 0, 3)), b(member(address, 1, 3));
  a.join();
  b.join();
  for (int round = 0; round < 6; ++round) {  // the child takes part
    if (round % 2 == 1) {
      end_of(server, SIGKILL);
      server = start({"--server", address, "3", journal});
    }
    std::thread other([&] { b.barrier("round", in(20000)); });
    a.barrier("round", in(20000));
    other.join();
    EXPECT_EQ(a.get(str_cat("child ", round), in(20000)), str_cat(round));
  }
  // A member that is stopped for a second raises no alarm; then it is killed.
  ::kill(child, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(1000));
  ::kill(child, SIGCONT);
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_FALSE(a.ended().has_value());
  int64_t begin = internal::now_ns();
  end_of(child, SIGKILL);
  const std::string text = error_of([&] { a.barrier("never", in(20000)); });
  std::printf("kill -9 of a member is known after %.2f s\n", seconds_since(begin));
  EXPECT_LT(seconds_since(begin), 2.5);
  expect_has(text, str_cat("rank 2 (host h, pid ", child, ") is dead or stopped: its connection closed"));
  end_of(server, SIGTERM);
}

TEST(Processes, StoppedMember) {
  JobServerOptions o;
  o.token = "secret";
  o.size = 2;
  JobServer server(o);
  const pid_t child = start({"--member", server.address(), "1", "2"});
  Client a(member(server.address(), 0, 2));
  a.join();
  const int64_t begin = internal::now_ns();
  ::kill(child, SIGSTOP);
  const std::string text = error_of([&] { a.get("never", in(20000)); });
  std::printf("SIGSTOP of a member is known after %.2f s\n", seconds_since(begin));
  EXPECT_GT(seconds_since(begin), 1.5);
  expect_has(text, str_cat("rank 1 (host h, pid ", child, ") is dead or stopped: no heartbeat for 2."));
  ::kill(child, SIGCONT);
  EXPECT_EQ(end_of(child) & 0x7f, 0);  // the child gets the cause, and ends by itself
}

int run_server(char** argv) {
  JobServer s(JobServerOptions{.address = argv[2], .token = "secret", .size = std::atol(argv[3]), .journal = argv[4]});
  while (::getppid() != 1) std::this_thread::sleep_for(milliseconds(100));
  return 0;
}

int run_member(char** argv) {
  try {
    Client c(member(argv[2], std::atol(argv[3]), std::atol(argv[4])));
    c.join();
    for (int round = 0;; ++round) {
      c.progress(static_cast<uint64_t>(round));
      c.barrier("round", in(30000));
      c.set(str_cat("child ", round), str_cat(round));
    }
  } catch (const Error& e) {
    std::printf("member: %s\n", e.what());
    return 3;
  }
}

}  // namespace
}  // namespace weft::control

int main(int argc, char** argv) {
  if (argc > 4 && std::string(argv[1]) == "--server") return weft::control::run_server(argv);
  if (argc > 4 && std::string(argv[1]) == "--member") return weft::control::run_member(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
