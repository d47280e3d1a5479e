#include "distributed/control/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/base/parse_number.h"
#include "framework/base/str_cat.h"

namespace weft::control {
namespace {

struct Resolved {
  explicit Resolved(const std::string& host) {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_DGRAM;
    bad = getaddrinfo(host.c_str(), "1", &hints, &first);
    if (bad) first = nullptr;
  }
  ~Resolved() {
    if (first) freeaddrinfo(first);
  }
  Resolved(const Resolved&) = delete;
  addrinfo* first = nullptr;  // null: the name is not known
  int bad = 0;
};

bool is_loopback(const sockaddr* a) {
  if (a->sa_family == AF_INET) return (ntohl(reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr) >> 24) == 127;
  return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr);
}

}  // namespace

HostPort parse_address(std::string_view address, std::string_view what, bool listens) {
  constexpr int64_t kMostPort = 65535;
  const size_t colon = address.rfind(':');
  std::string_view host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const auto port = colon == address.npos
                        ? std::optional<int64_t>()
                        : parse_number<int64_t>(address.substr(colon + 1), listens ? 0 : 1, kMostPort);
  WEFT_CHECK(port && (listens || !host.empty()), what, ": got address '", one_line(address, 100),
             "'; need host:port, with a port from ", listens ? 0 : 1, " to ", kMostPort);
  return {std::string(host), static_cast<int>(*port)};
}

std::string with_port(const std::string& host, int port) {
  return host.find(':') == host.npos ? str_cat(host, ":", port) : str_cat("[", host, "]:", port);
}

std::string unknown_host(const std::string& host) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (true) {
    const Resolved found(host);
    if (!found.bad) return "";
    if (found.bad != EAI_AGAIN || std::chrono::steady_clock::now() >= until) return gai_strerror(found.bad);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

bool is_reachable(const std::string& host) {
  const Resolved found(host);
  return found.first && !is_loopback(found.first->ai_addr);
}

std::string address_towards(const std::string& host) {
  const Resolved found(host);
  for (const addrinfo* a = found.first; a; a = a->ai_next) {
    // The kernel chooses the source when a socket for datagrams is connected.
    const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own = {};
    socklen_t length = sizeof own;
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    char text[NI_MAXHOST] = {};
    const bool ok = connect(fd, a->ai_addr, a->ai_addrlen) == 0 && getsockname(fd, address, &length) == 0 &&
                    !is_loopback(address) &&
                    getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0;
    close(fd);
    if (ok) return text;
  }
  return "";
}

}  // namespace weft::control
