// For fuzz tests: connections that send any bytes to a service, as frames of HTTP/2 and gRPC.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "framework/testing/fuzz.h"

namespace weft::control::testing {

inline constexpr const char* kToken = "the secret";

inline std::string frame(int type, int flags, uint32_t stream, const std::string& payload) {
  std::string out;
  for (int shift : {16, 8, 0}) out += static_cast<char>(payload.size() >> shift);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  for (int shift : {24, 16, 8, 0}) out += static_cast<char>(stream >> shift);
  return out + payload;
}

/// A literal HPACK header field.
inline std::string field(const std::string& name, const std::string& value) {
  return std::string(1, '\x10') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
}

inline std::string conversation(bool token, const std::string& message) {
  std::string headers = field(":method", "POST") + field(":scheme", "http") +
                        field(":path", "/weft.control.Coordination/Talk") + field(":authority", "localhost") +
                        field("content-type", "application/grpc") + field("te", "trailers");
  if (token) headers += field("weft-token-bin", "dGhlIHNlY3JldA");  // kToken in base 64
  std::string data(1, '\0');
  for (int shift : {24, 16, 8, 0}) data += static_cast<char>(message.size() >> shift);
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "") + frame(4, 1, 0, "") + frame(1, 4, 1, headers) +
         frame(0, 0, 1, data + message);
}

/// One connection. It ends with a reset, so that no port stays occupied for minutes.
class RawConnection {
 public:
  RawConnection(int port, const std::string& bytes) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const linger reset{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0)
      (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  RawConnection(RawConnection&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  ~RawConnection() {
    if (fd_ >= 0) ::close(fd_);
  }
  /// Reads until the server closes, or has sent nothing for `wait_ms`.
  std::string read(int wait_ms) {
    const timeval wait{wait_ms / 1000, wait_ms % 1000 * 1000};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    std::string out;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(fd_, buffer, sizeof buffer, 0)) > 0;) out.append(buffer, static_cast<size_t>(n));
    return out;
  }

 private:
  int fd_;
};

/// Sends these conversations, damaged, over new connections. Returns the number of bytes.
inline int64_t send_damaged_frames(int port, const std::vector<std::string>& seeds, int64_t inputs,
                                   weft::testing::FuzzRandom& random) {
  int64_t sent = 0;
  std::deque<RawConnection> open;
  for (int64_t i = 0; i < inputs; ++i) {
    std::string bytes = seeds[random() % seeds.size()];
    if (random() % 16 == 0) {
      for (char& c : bytes) c = static_cast<char>(random());
    } else if (random() % 4 == 0) {  // after an intact preface
      std::string rest = bytes.substr(24);
      weft::testing::damage_bytes(rest, random);
      bytes = bytes.substr(0, 24) + rest;
    } else {
      weft::testing::damage_bytes(bytes, random);
    }
    if (random() % 64 == 0) bytes += std::string(100000, '\0');
    sent += static_cast<int64_t>(bytes.size());
    open.emplace_back(port, bytes);
    if (open.size() > 48) open.pop_front();  // the server has read it
  }
  return sent;
}

}  // namespace weft::control::testing
