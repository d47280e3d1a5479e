#include "distributed/comm/gloo/connect.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <list>

#include "distributed/comm/fd.h"
#include "distributed/comm/gloo/frame.h"
#include "framework/base/error.h"

namespace weft::dist::wire {
namespace {

using Clock = std::chrono::steady_clock;
using internal::Fd;
using internal::wait_for;

constexpr size_t kMaxPending = 256;  // limit of accepted connections without a hello
constexpr auto kHelloTimeout = std::chrono::seconds(5);

struct Endpoint {
  sockaddr_storage address = {};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Error system_error(const std::string& what) {
  return Error(Code::kUnavailable, str_cat(what, ": ", std::strerror(errno)));
}

Endpoint endpoint_of(const std::string& address, const std::string& port, int flags) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  const int code = getaddrinfo(address.c_str(), port.c_str(), &hints, &found);
  WEFT_CHECK_AS(kNotFound, code == 0, "gloo: cannot find the address '", address, "': ", gai_strerror(code));
  Endpoint e;
  e.length = found->ai_addrlen;
  std::memcpy(&e.address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return e;
}

// The preference of an address: the higher the better; 0: other processes cannot reach it. A link-local address needs
// the name of the interface, which may differ on the other hosts.
int preference_of(const sockaddr* a) {
  if (!a || (a->sa_family != AF_INET && a->sa_family != AF_INET6)) return 0;
  if (a->sa_family == AF_INET) return 3;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr) ? 1 : 2;
}

// The best address of an interface; without a name, of all interfaces that are up, except loopback. Among addresses
// with equal preference, the first wins.
Endpoint address_of_interface(const std::string& name) {
  WEFT_CHECK_AS(kNotFound, name.empty() || if_nametoindex(name.c_str()) > 0,
                "gloo: this host has no network interface '", name, "'");
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) throw system_error("gloo: cannot list the network interfaces of this host");
  Endpoint found;
  int best = name.empty() ? 1 : 0;
  for (const ifaddrs* a = all; a; a = a->ifa_next) {
    const bool open = (a->ifa_flags & IFF_UP) && !(a->ifa_flags & IFF_LOOPBACK);
    const int preference = preference_of(a->ifa_addr);
    if ((name.empty() ? !open : name != a->ifa_name) || preference <= best) continue;
    best = preference;
    found.length = a->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&found.address, a->ifa_addr, found.length);
  }
  freeifaddrs(all);
  WEFT_CHECK_AS(kNotFound, found.length > 0,
                name.empty() ? "gloo: this host has no network interface with an address but the loopback one"
                             : str_cat("gloo: the network interface '", name, "' has no address"));
  return found;
}

// "10.0.0.1 45678".
std::string text_of(const Endpoint& e) {
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  const int code =
      getnameinfo(e.get(), e.length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  WEFT_CHECK_AS(kUnavailable, code == 0, "gloo: cannot write an address: ", gai_strerror(code));
  return str_cat(host, " ", port);
}

Fd make_socket(int family) {
  Fd s(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!s) throw system_error("gloo: cannot make a socket");
  return s;
}

// Compares in a time that does not depend on the position of a difference.
bool equal_in_constant_time(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  int differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ |= a[i] ^ b[i];
  return differ == 0;
}

// A connection without a hello so far.
struct PendingConnection {
  Fd socket;
  Store::Deadline end;
  std::string text;

  // Reads until `size` bytes are there, never more; false if the connection has ended.
  bool read(size_t size) {
    while (text.size() < size) {
      char buffer[256];
      const ssize_t n = recv(socket.get(), buffer, std::min(sizeof buffer, size - text.size()), 0);
      if (n > 0)
        text.append(buffer, n);
      else if (n < 0 && errno == EINTR)
        continue;
      else
        return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
    return true;
  }
};

// Sends the whole text: the send buffer of a new connection is empty, so it fits.
bool send_text(int fd, const std::string& text) {
  return send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

class Connector {
 public:
  Connector(Store& store, int mine, const std::vector<std::string>& names, const ConnectOptions& options,
            Store::Deadline deadline)
      : store_(store), mine_(mine), names_(names), token_(options.token), deadline_(deadline), sockets_(names.size()) {
    Endpoint own = options.address.empty() ? address_of_interface(options.interface)
                                           : endpoint_of(options.address, "0", AI_PASSIVE);
    listener_ = make_socket(own.get()->sa_family);
    if (bind(listener_.get(), own.get(), own.length) != 0)
      throw system_error(
          options.address.empty()
              ? str_cat("gloo: cannot listen at the interface '", options.interface, "'")
              : str_cat("gloo: cannot listen at ", options.address, ", which must be an address of this host"));
    if (listen(listener_.get(), SOMAXCONN) != 0) throw system_error("gloo: cannot listen");
    getsockname(listener_.get(), own.get(), &own.length);
    store.set(key_of(mine), text_of(own));
  }

  std::vector<int> run() {
    for (int p = 0; p < mine_; ++p) connect_to(p);
    for (int p = 0; p < mine_; ++p) receive_answer(p);
    while (missing() >= 0) accept_pending();
    std::vector<int> all;
    for (Fd& s : sockets_) {
      const int on = 1;
      if (s) setsockopt(s.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      all.push_back(s.release());
    }
    return all;
  }

 private:
  static std::string key_of(int process) { return str_cat("gloo/address_", process); }

  // Connects to a process with a lower number, which may itself still be connecting.
  void connect_to(int p) {
    const std::string text = address_of(p);
    const size_t space = text.find(' ');
    WEFT_CHECK_AS(kUnavailable, space != text.npos, "gloo: the store has a wrong ", key_of(p));
    const Endpoint e = endpoint_of(text.substr(0, space), text.substr(space + 1), AI_NUMERICHOST | AI_NUMERICSERV);
    sockets_[p] = make_socket(e.get()->sa_family);
    const int fd = sockets_[p].get();
    if (connect(fd, e.get(), e.length) != 0 && errno != EINPROGRESS) throw unreachable(p, text, errno);
    if (!wait_for(sockets_[p], POLLOUT, store_, deadline_)) throw unreachable(p, text, ETIMEDOUT);
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error) throw unreachable(p, text, error);
    if (!send_text(fd, hello(mine_, p, token_))) throw unreachable(p, text, errno);
  }
  std::string address_of(int p) const {
    try {
      return store_.get(key_of(p), deadline_);
    } catch (const Error& e) {
      throw Error(e.code(), str_cat(deadline_passed(p), ": ", e.what()));
    }
  }
  Error unreachable(int p, const std::string& address, int error) const {
    return Error(Code::kUnavailable,
                 str_cat("gloo: cannot connect to ", names_[p], " at ", address, ": ", std::strerror(error)));
  }

  // Waits for the hello of a process to which this process has connected.
  void receive_answer(int p) {
    const std::string want = hello(p, mine_, token_);
    PendingConnection pending{Fd(dup(sockets_[p].get())), deadline_, {}};
    while (pending.text.size() < want.size()) {
      WEFT_CHECK_AS(kDeadlineExceeded, wait_for(pending.socket, POLLIN, store_, deadline_), deadline_passed(p));
      WEFT_CHECK_AS(kUnavailable, pending.read(want.size()), "gloo: ", names_[p],
                    " has ended while it joined, or is not of this job");
    }
    WEFT_CHECK_AS(kUnavailable, equal_in_constant_time(pending.text, want), "gloo: ", names_[p], " is not of this job");
  }
  std::string deadline_passed(int p) const {
    return str_cat("gloo: ", names_[p], " has not joined before the deadline");
  }

  // The first process that has not connected; -1: none.
  int missing() const {
    for (int p = mine_ + 1; p < static_cast<int>(sockets_.size()); ++p)
      if (!sockets_[p]) return p;
    return -1;
  }

  void accept_pending() {
    store_.check();
    WEFT_CHECK_AS(kDeadlineExceeded, Clock::now() < deadline_, deadline_passed(missing()));
    std::vector<pollfd> all{{listener_.get(), POLLIN, 0}};
    for (const PendingConnection& h : pending_) all.push_back({h.socket.get(), POLLIN, 0});
    ::poll(all.data(), all.size(), 20);
    size_t i = 1;
    for (auto h = pending_.begin(); h != pending_.end(); ++i) {
      const bool ended = all[i].revents != 0 ? !receive_hello(*h) : Clock::now() > h->end;
      h = ended ? pending_.erase(h) : std::next(h);
    }
    if (!all[0].revents) return;
    Fd next(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!next) return;
    if (pending_.size() == kMaxPending) pending_.pop_front();
    pending_.push_back({std::move(next), Clock::now() + kHelloTimeout, {}});
  }

  // Reads the hello of an accepted connection and answers it. False if the connection is not pending any more.
  bool receive_hello(PendingConnection& h) {
    const size_t size = hello(0, 0, token_).size();
    if (!h.read(size)) return false;
    if (h.text.size() < size) return true;
    int p = -1;
    std::memcpy(&p, h.text.data() + offsetof(FrameHeader, from), sizeof p);
    const bool expected = p > mine_ && p < static_cast<int>(sockets_.size()) && !sockets_[p];
    if (!expected || !equal_in_constant_time(h.text, hello(p, mine_, token_))) return false;
    if (send_text(h.socket.get(), hello(mine_, p, token_))) sockets_[p] = std::move(h.socket);
    return false;
  }

  Store& store_;
  const int mine_;
  const std::vector<std::string>& names_;
  const std::string token_;
  const Store::Deadline deadline_;
  Fd listener_;
  std::vector<Fd> sockets_;  // index: process
  std::list<PendingConnection> pending_;
};

}  // namespace

std::string hello(int from, int to, const std::string& token) {
  FrameHeader h;
  h.kind = FrameKind::kHello;
  h.from = from;
  h.to = to;
  h.bytes = static_cast<uint32_t>(token.size());
  return std::string(reinterpret_cast<const char*>(&h), sizeof h) + token;
}

std::vector<int> connect_processes(Store& store, int mine, const std::vector<std::string>& names,
                                   const ConnectOptions& options, Store::Deadline deadline) {
  return Connector(store, mine, names, options, deadline).run();
}

}  // namespace weft::dist::wire
