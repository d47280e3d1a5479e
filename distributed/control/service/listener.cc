#include "distributed/control/service/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "distributed/control/address.h"
#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

constexpr double kPerSecond = 1000;

/// The number of a descriptor's socket, unique among open files; 0 if the descriptor is no socket.
uint64_t socket_of(int fd) {
  struct stat s;
  return ::fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

int listen_on(const addrinfo& a) {
  const int fd = ::socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a.ai_protocol);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on,
               sizeof on);  // only a listener occupies the port, not closed connections
  if (a.ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd, a.ai_addr, a.ai_addrlen) == 0 && ::listen(fd, 1024) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

}  // namespace

Listener::Listener(const std::string& address, size_t most_open) : most_open_(most_open) {
  const auto [host, port] = parse_address(address, "coordination service", /*listens=*/true);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const int bad = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  std::string reason = bad ? ::gai_strerror(bad) : "";
  // The IPv6 address of all interfaces also accepts IPv4.
  for (const int family : {host.empty() ? AF_INET6 : AF_UNSPEC, AF_UNSPEC})
    for (const addrinfo* a = found; a && fd_ < 0; a = a->ai_next) {
      if (family != AF_UNSPEC && family != a->ai_family) continue;
      fd_ = listen_on(*a);
      if (fd_ < 0) reason = std::strerror(errno);
    }
  if (found) ::freeaddrinfo(found);
  WEFT_CHECK_AS(kUnavailable, fd_ >= 0, "coordination service: cannot listen on ", one_line(address, 100), ": ", reason,
                "; need an address of this host, and a port that no other program uses");
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  ::getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &size);
  port_ = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(own).sin_port);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
}

Listener::~Listener() {
  stop();
  if (fd_ >= 0) ::close(fd_);
  if (stop_fd_ >= 0) ::close(stop_fd_);
}

void Listener::start(std::function<void(int)> taken) {
  taken_ = std::move(taken);
  thread_ = std::thread([this] { run(); });
}

void Listener::stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(stop_fd_, &one, sizeof one);
  thread_.join();
}

bool Listener::has_room() {
  if (open_.size() < most_open_) return true;
  std::erase_if(open_, [](const auto& o) { return socket_of(o.first) != o.second; });
  return open_.size() < most_open_;
}

void Listener::run() {
  const double burst = static_cast<double>(most_open_);
  double may = burst;  // number of connections that may be accepted now
  int64_t last_ns = internal::now_ns();
  while (true) {
    pollfd fds[] = {{stop_fd_, POLLIN, 0}, {fd_, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[0].revents) return;
    const int64_t now = internal::now_ns();
    may = std::min(burst, may + 1e-9 * static_cast<double>(now - last_ns) * kPerSecond);
    last_ns = now;
    if (may < 1) {
      ::poll(fds, 1, 10);  // further connections wait in the kernel
      continue;
    }
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) ::poll(fds, 1, 100);
      continue;
    }
    may -= 1;
    if (!has_room()) {
      ::close(fd);
      continue;
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    open_.emplace_back(fd, socket_of(fd));
    taken_(fd);
  }
}

}  // namespace weft::control
