// If other programs connect to the port of a waiting process, they have no effect.
#include "distributed/comm/gloo/connect.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "distributed/comm/gloo/frame.h"
#include "distributed/comm/testing/processes.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist::wire {
namespace {

using Clock = std::chrono::steady_clock;
const std::string kToken = "0123456789abcdef0123456789abcdef";

Store::Deadline in(int ms) { return Clock::now() + std::chrono::milliseconds(ms); }

// Connects to the port of process 0, and sends a text.
int connection(Store& store, const std::string& text) {
  std::istringstream own(store.get("gloo/address_0", in(10000)));
  std::string host;
  int port = 0;
  own >> host >> port;
  sockaddr_in a = {};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host.c_str(), &a.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a), 0);
  EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  return fd;
}

// Whether the other side has closed the connection; it sends nothing.
bool closed(int fd) {
  const timeval patience{2, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char c;
  const ssize_t n = recv(fd, &c, 1, 0);
  return n == 0 || (n < 0 && errno == ECONNRESET);
}

// The bytes that the other side sends, up to `size`.
std::string received(int fd, size_t size) {
  std::string text(size, 0);
  const ssize_t n = recv(fd, text.data(), size, MSG_WAITALL);
  return text.substr(0, std::max<ssize_t>(n, 0));
}

TEST(Connect, ConnectionsWithoutTheTokenHaveNoEffect) {
  FolderStore store(weft::testing::new_folder());
  const std::vector<std::string> names{"rank 0", "rank 1", "rank 2"};
  std::vector<int> sockets;
  std::thread zero([&] { sockets = connect_processes(store, 0, names, {"127.0.0.1", "", kToken}, in(20000)); });

  std::mt19937_64 random(1);
  std::string noise(100000, ' ');
  for (char& c : noise) c = static_cast<char>(random());
  std::string foreign = kToken;
  foreign.back() ^= 1;
  std::string oversized = hello(1, 0, kToken);
  const uint32_t most = 0xffffffff;
  std::memcpy(oversized.data() + offsetof(FrameHeader, bytes), &most, sizeof most);
  std::string leave = hello(1, 0, kToken);
  leave[offsetof(FrameHeader, kind)] = static_cast<char>(FrameKind::kLeave);
  const std::string wrong[] = {
      noise,
      oversized,
      "GET / HTTP/1.1\r\nHost: weft\r\nUser-Agent: something that is longer than a hello\r\n\r\n"
      "............................................",
      hello(1, 0, foreign),
      hello(1, 0, std::string(kToken.size(), '\0')),
      hello(1, 2, kToken),
      hello(0, 0, kToken),
      hello(-1, 0, kToken),
      hello(1 << 30, 0, kToken),
      leave};
  for (const std::string& text : wrong) {
    const int fd = connection(store, text);
    EXPECT_TRUE(closed(fd)) << text.substr(0, 100);
    close(fd);
  }
  std::vector<int> silent;  // more connections than may be pending
  for (int i = 0; i < 300; ++i) silent.push_back(connection(store, hello(1, 0, kToken).substr(0, i % 88)));

  const int one = connection(store, hello(1, 0, kToken));
  EXPECT_EQ(received(one, 88), hello(0, 1, kToken));
  const int copy = connection(store, hello(1, 0, kToken));  // the same a second time
  EXPECT_TRUE(closed(copy));
  const int two = connection(store, hello(2, 0, kToken) + "data behind");
  EXPECT_EQ(received(two, 88), hello(0, 2, kToken));
  zero.join();
  ASSERT_EQ(sockets.size(), 3u);
  EXPECT_EQ(sockets[0], -1);
  EXPECT_EQ(received(sockets[2], 11), "data behind");
  EXPECT_EQ(send(sockets[1], "more", 4, 0), 4);
  EXPECT_EQ(received(one, 4), "more");
  for (const auto* list : {&silent, &sockets})
    for (const int fd : *list) close(fd);
  for (const int fd : {one, copy, two}) close(fd);
}

TEST(Connect, MissingProcessesAndWrongAddressesAreNamed) {
  FolderStore store(weft::testing::new_folder());
  const auto error = [&](const ConnectOptions& options) {
    return weft::testing::placed_error_of([&] { connect_processes(store, 0, {"rank 0", "rank 4"}, options, in(50)); });
  };
  EXPECT_EQ(error({"", "none7", kToken}), "gloo: this host has no network interface 'none7'");
  EXPECT_NE(error({"no.such.host.invalid", "", kToken}).find("'no.such.host.invalid'"), std::string::npos);
  EXPECT_NE(error({"192.0.2.1", "", kToken}).find("192.0.2.1, which must be an address of this host"),
            std::string::npos);
  EXPECT_EQ(error({"", "lo", kToken}), "gloo: rank 4 has not joined before the deadline");
}

TEST(Connect, WorksOverIPv6) {
  if (std::ifstream("/proc/net/if_inet6").peek() == EOF) GTEST_SKIP() << "this host has no IPv6";
  FolderStore store(weft::testing::new_folder());
  std::vector<int> sockets[2];
  const auto connect = [&](int p) {
    sockets[p] = connect_processes(store, p, {"rank 0", "rank 1"}, {"::1", "", kToken}, in(20000));
  };
  std::thread zero(connect, 0);
  connect(1);
  zero.join();
  EXPECT_EQ(send(sockets[0][1], "text", 4, 0), 4);
  EXPECT_EQ(received(sockets[1][0], 4), "text");
  close(sockets[0][1]), close(sockets[1][0]);
}

// The interface has a link-local and another IPv6 address, and no IPv4 address.
TEST(Connect, FindsTheAddressOfAHostWithIPv6Alone) {
  weft::testing::Processes one(1, [](int) {
    if (unshare(CLONE_NEWNET | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 ||
        std::system("(ip link add own0 type veth peer name own1 && ip link set own1 up && ip link set own0 up &&"
                    " ip address add fd77::1/64 dev own0 nodad) >/dev/null 2>&1") != 0) {
      std::printf("not tested: no right to make a network\n");
      return;
    }
    for (const char* interface : {"", "own0"}) {
      FolderStore store(weft::testing::new_folder());
      connect_processes(store, 0, {"rank 0"}, {"", interface, kToken}, in(1000));
      const std::string address = store.get("gloo/address_0", in(1000));
      EXPECT_EQ(address.rfind("fd77::1 ", 0), 0u) << address;
    }
  });
  EXPECT_EQ(one.wait(), "0");
}

// A job that has ended while its processes connect.
struct EndedStore final : Store {
  void set(const std::string&, const std::string&) override {}
  std::string get(const std::string&, Deadline) override { return "127.0.0.1 1"; }
  void check() override { throw Error(Code::kAborted, "rank 1 has failed"); }
};

TEST(Connect, EndsWithTheJob) {
  EndedStore store;
  const std::string error = weft::testing::error_of([&] {
    connect_processes(store, 0, {"rank 0", "rank 1"}, {"127.0.0.1", "", kToken}, in(60000));
  });
  EXPECT_EQ(error, "rank 1 has failed");
}

}  // namespace
}  // namespace weft::dist::wire
