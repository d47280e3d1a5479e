// Strangers at the port where a process waits for the others change nothing.
#include "distributed/comm/gloo/connect.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
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

// A connection to the port of process 0, which sends a text.
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

// What the other side sends, up to `size` bytes.
std::string received(int fd, size_t size) {
  std::string text(size, 0);
  const ssize_t n = recv(fd, text.data(), size, MSG_WAITALL);
  return text.substr(0, std::max<ssize_t>(n, 0));
}

TEST(Connect, StrangersChangeNothing) {
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
  std::vector<int> silent;  // more than are kept
  for (int i = 0; i < 300; ++i) silent.push_back(connection(store, hello(1, 0, kToken).substr(0, i % 88)));

  const int one = connection(store, hello(1, 0, kToken));
  EXPECT_EQ(received(one, 88), hello(0, 1, kToken));
  const int copy = connection(store, hello(1, 0, kToken));  // the same a second time
  EXPECT_TRUE(closed(copy));
  const int two = connection(store, hello(2, 0, kToken) + "what follows");
  EXPECT_EQ(received(two, 88), hello(0, 2, kToken));
  zero.join();
  ASSERT_EQ(sockets.size(), 3u);
  EXPECT_EQ(sockets[0], -1);
  EXPECT_EQ(received(sockets[2], 12), "what follows");
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
