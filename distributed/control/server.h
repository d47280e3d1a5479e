// The coordination service of a job on gRPC: connections for the logic of state.h, and its journal.
//
// It listens on loopback unless another address is given. Each connection must bring the token before anything of it is
// read; the token is not encrypted, so that a network that others listen on needs its own protection. Messages are of
// bounded size and number, as are connections: 1000 are accepted in a second.
//
// It has two threads of its own. gRPC starts a few more when the first server or client of the process is made; they
// may stay. A process must therefore not fork (without exec at once) after that: a launcher forks its ranks first, and
// then makes the service.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace weft::control {

struct ServerOptions {
  std::string address = "127.0.0.1:0";  // port 0: any free one
  /// May be empty only on loopback: then each user of this host may connect.
  std::string token;
  std::string job = "job";
  int64_t size = 1;    // ranks of the job
  uint64_t epoch = 1;  // the first epoch
  /// Path of a file that lets a service that was killed continue; "": none, a restart then ends the job.
  std::string journal;
  int64_t silence_ms = 2000;   // a member without a heartbeat for so long is dead
  int64_t reconnect_ms = 400;  // as is one whose connection closed, without a new one for so long
  int64_t restart_ms = 5000;   // time for members to connect after a restart
};

/// What the service knows, for reports and tests.
struct ServerStatus {
  uint64_t epoch;
  enum class Stage { kJoining, kRunning, kEnded } stage;
  int64_t members;  // that have joined and not left
  int64_t keys;
  int64_t connections;   // with the token
  int64_t refused;       // that had another token
  std::string cause;     // of the end
  uint64_t fingerprint;  // of all that a restart keeps
};

class Server {
 public:
  /// Starts the service. Throws if the address is in use or not of this host.
  explicit Server(const ServerOptions& options);
  /// Closes all connections. Members see that the service is away; the job does not end.
  ~Server();
  Server(const Server&) = delete;

  /// "127.0.0.1:43210".
  std::string address() const;
  int port() const;
  /// Ends the epoch because a rank died, if it has not ended: `text` is what is known of it.
  void report_death(int64_t rank, const std::string& text);
  ServerStatus status() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::control
