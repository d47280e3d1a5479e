// A service on gRPC: connections, and the journal, for a logic (logic.h).
//
// It listens on loopback unless another address is given. It reads nothing from a connection before the token. The
// token is not encrypted: an untrusted network needs its own protection. The size and number of messages and the number
// of connections are bounded: it accepts 1000 connections per second.
//
// It has two threads of its own. gRPC starts a few more when a process makes its first server or client, and may keep
// them. After that, the process must not fork without an immediate exec. So a launcher forks its ranks before it makes
// the service.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "distributed/control/service/logic.h"

namespace weft::control {

struct ServerOptions {
  std::string address = "127.0.0.1:0";  // port 0: any free one
  /// May be empty only on loopback; then every user of this host can connect.
  std::string token = {};
  /// Path of a file from which a restarted service continues; "": none.
  std::string journal = {};
  /// Not "": a new run, which replaces a journal whose title begins with this text (Journal).
  std::string earlier = {};
};

class Server {
 public:
  /// Starts the service. Throws if the address is in use or does not belong to this host, or if the journal is in use,
  /// damaged, or of another run.
  Server(const ServerOptions& options, std::unique_ptr<ServiceLogic> logic);
  /// Closes all connections. Members see that the service is away.
  ~Server();
  Server(const Server&) = delete;

  /// "127.0.0.1:43210".
  std::string address() const;
  int port() const;
  /// Applies an event of this process now; its time is set here.
  void handle(ServiceEvent event);
  /// Calls fn while no event is applied.
  void look(const std::function<void()>& fn) const;
  /// For look(): the numbers of connections with the token, and with another token so far.
  int64_t connections() const;
  int64_t refused() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::control
