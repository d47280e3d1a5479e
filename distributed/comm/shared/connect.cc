#include "distributed/comm/shared/connect.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <sstream>

#include "distributed/comm/world_checks.h"
#include "framework/base/error.h"

namespace weft::dist::shared {
namespace {

using Clock = std::chrono::steady_clock;
using internal::Fd;
using internal::wait_for;

constexpr uint64_t kMagic = 0x3165666977746677;
constexpr int kMaxRanks = 200;  // limit for one process: the kernel passes at most 253 descriptors at once

// The one message of a connection, in each direction.
struct Hello {
  uint64_t magic = kMagic;
  char token[32] = {};  // the receiver's token from the store: shows that the sender belongs to this job
  int64_t reserve = 0;
  int32_t size = 0, count = 0;
  int32_t ranks[kMaxRanks] = {};
};

// A process's entry in the store.
struct Address {
  std::string name, token;
};

std::string key_of(int rank) { return str_cat("shared_memory/rank_", rank); }

sockaddr_un socket_address(const std::string& name, socklen_t* length) {
  sockaddr_un a = {};
  a.sun_family = AF_UNIX;
  std::memcpy(a.sun_path + 1, name.data(), name.size());  // a leading 0: no file
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

Fd make_socket() {
  Fd s(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  WEFT_CHECK_AS(kUnavailable, s, "shared memory: cannot make a socket: ", std::strerror(errno));
  return s;
}

bool same_user(int socket, pid_t* pid) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  *pid = peer.pid;
  return peer.uid == geteuid();
}

void send_hello(int socket, int rank, const Hello& hello, const std::vector<Segment*>& own) {
  iovec data{const_cast<Hello*>(&hello), sizeof hello};
  std::vector<char> control(CMSG_SPACE(own.size() * sizeof(int)));
  msghdr m = {};
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  m.msg_control = control.data();
  m.msg_controllen = control.size();
  cmsghdr* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(own.size() * sizeof(int));
  for (size_t i = 0; i < own.size(); ++i) {
    const int fd = own[i]->fd();
    std::memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof fd);
  }
  WEFT_CHECK_AS(kUnavailable, sendmsg(socket, &m, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello),
                "shared memory: cannot send to the process of rank ", rank, ": ", std::strerror(errno));
}

// Reads the message of another process; false if the process is not in this job.
bool receive_hello(int socket, const std::string& token, Hello* hello, std::vector<Fd>* fds) {
  iovec data{hello, sizeof *hello};
  std::vector<char> control(CMSG_SPACE(253 * sizeof(int)));
  msghdr m = {};
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  m.msg_control = control.data();
  m.msg_controllen = control.size();
  const ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  for (cmsghdr* c = n < 0 ? nullptr : CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      fds->push_back(Fd(fd));
    }
  }
  return n == static_cast<ssize_t>(sizeof *hello) && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
         hello->magic == kMagic && std::string(hello->token, sizeof hello->token) == token && hello->count > 0 &&
         hello->count <= kMaxRanks && static_cast<size_t>(hello->count) == fds->size();
}

PeerProcess make_peer(Fd socket, pid_t pid, const Hello& hello, std::vector<Fd>& fds) {
  PeerProcess p;
  p.pid = pid;
  p.ranks.assign(hello.ranks, hello.ranks + hello.count);
  for (int i = 0; i < hello.count; ++i)
    p.segments.push_back(std::make_unique<Segment>(hello.ranks[i], hello.reserve, fds[i].release()));
  p.socket = std::move(socket);
  if (pid > 0) p.pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));  // pidfd_open sets close-on-exec
  return p;
}

}  // namespace

std::vector<PeerProcess> connect_processes(Store& store, int size, const std::vector<Segment*>& own,
                                           Store::Deadline deadline) {
  WEFT_CHECK(!own.empty() && own.size() <= kMaxRanks, "shared memory: ", own.size(),
             " ranks in one process; need 1 to ", kMaxRanks);
  Hello hello;
  hello.reserve = own[0]->reserve();
  hello.size = size;
  hello.count = static_cast<int32_t>(own.size());
  for (size_t i = 0; i < own.size(); ++i) hello.ranks[i] = own[i]->rank();
  const Address mine{str_cat("weft-", getpid(), "-", internal::random_text()), internal::random_text()};
  Fd listener = make_socket();
  socklen_t length;
  const sockaddr_un address = socket_address(mine.name, &length);
  WEFT_CHECK_AS(kUnavailable,
                bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                    listen(listener.get(), SOMAXCONN) == 0,
                "shared memory: cannot listen on a unix-domain socket: ", std::strerror(errno));
  for (const Segment* s : own) store.set(key_of(s->rank()), str_cat(mine.name, " ", mine.token));

  // Processes by name, with their first ranks. A process connects to all processes with a smaller first rank; the
  // others connect to it.
  std::map<std::string, std::pair<int, Address>> processes;  // key: name
  for (int r = 0; r < size; ++r) {
    std::stringstream text(store.get(key_of(r), deadline));
    Address a;
    text >> a.name >> a.token;
    WEFT_CHECK(a.name.size() < 100 && a.token.size() == sizeof hello.token, "shared memory: the address of rank ", r,
               " is damaged");
    processes.try_emplace(a.name, r, a);
  }
  std::vector<PeerProcess> peers;
  std::vector<bool> known(size, false);
  for (const Segment* s : own) known[s->rank()] = true;
  auto add = [&](PeerProcess p) {
    for (int r : p.ranks) {
      WEFT_CHECK(r >= 0 && r < size && !known[r], "shared memory: two processes say that they are rank ", r);
      known[r] = true;
    }
    peers.push_back(std::move(p));
  };
  const int first = processes.at(mine.name).first;
  size_t later = 0;
  for (const auto& [name, process] : processes) {
    if (process.first > first) ++later;
    if (process.first >= first) continue;
    Fd s = make_socket();
    const sockaddr_un to = socket_address(name, &length);
    WEFT_CHECK_AS(kUnavailable, connect(s.get(), reinterpret_cast<const sockaddr*>(&to), length) == 0,
                  "shared memory: cannot connect to rank ", process.first, ": ", std::strerror(errno),
                  "; need all ranks on one host, and a new store for each job");
    std::memcpy(hello.token, process.second.token.data(), sizeof hello.token);
    send_hello(s.get(), process.first, hello, own);
    pid_t pid = 0;
    Hello other;
    std::vector<Fd> fds;
    WEFT_CHECK_AS(kDeadlineExceeded, wait_for(s, POLLIN, store, deadline), "shared memory: rank ", process.first,
                  " has not answered before the deadline");
    WEFT_CHECK_AS(kUnavailable,
                  same_user(s.get(), &pid) && receive_hello(s.get(), mine.token, &other, &fds) && other.size == size,
                  "shared memory: the process of rank ", process.first,
                  " is of another user or job, or has ended while it started");
    add(make_peer(std::move(s), pid, other, fds));
  }
  while (later > 0) {
    if (!wait_for(listener, POLLIN, store, deadline)) {
      std::string missing;
      for (int r = 0; r < size; ++r)
        if (!known[r]) missing += str_cat(missing.empty() ? "" : ", ", "rank ", r);
      WEFT_CHECK_AS(kDeadlineExceeded, false, "shared memory: the deadline has passed; not connected yet: ", missing);
    }
    Fd s(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    pid_t pid = 0;
    Hello other;
    std::vector<Fd> fds;
    // Connections without the token are closed: any process may connect to an abstract address.
    if (!s || !same_user(s.get(), &pid) ||
        !wait_for(s, POLLIN, store, std::min(deadline, Clock::now() + std::chrono::seconds(2))) ||
        !receive_hello(s.get(), mine.token, &other, &fds) || other.size != size)
      continue;
    const auto process = std::find_if(processes.begin(), processes.end(), [&](const auto& p) {
      return p.second.first == *std::min_element(other.ranks, other.ranks + other.count);
    });
    if (process == processes.end()) continue;
    std::memcpy(hello.token, process->second.second.token.data(), sizeof hello.token);
    send_hello(s.get(), process->second.first, hello, own);
    add(make_peer(std::move(s), pid, other, fds));
    --later;
  }
  return peers;
}

}  // namespace weft::dist::shared
