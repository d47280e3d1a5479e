// The port of the coordination service. gRPC's own listener accepts while clients connect, and meanwhile does not read
// from open connections: any client could delay heartbeats until members count as dead. This listener bounds the
// connections that it accepts per second, and the open connections.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::control {

class Listener {
 public:
  /// Listens on "host:port", "[fd00::1]:port", or ":port" on all interfaces; port 0 chooses a free port. Throws if it
  /// cannot listen.
  Listener(const std::string& address, size_t most_open);
  ~Listener();
  Listener(const Listener&) = delete;

  int port() const { return port_; }
  /// Starts a thread that calls `taken` with the descriptor of each connection; `taken` then owns the descriptor.
  void start(std::function<void(int)> taken);
  /// Ends the thread, and accepts no more.
  void stop();

 private:
  void run();
  bool has_room();

  const size_t most_open_;
  int fd_ = -1, stop_fd_ = -1, port_ = 0;
  std::function<void(int)> taken_;
  std::vector<std::pair<int, uint64_t>> open_;  // descriptors given away, each with the number of its socket
  std::thread thread_;
};

}  // namespace weft::control
