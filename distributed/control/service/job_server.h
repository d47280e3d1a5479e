// The coordination service of a job: the logic of state.h on a server (server.h).
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace weft::control {

struct JobServerOptions {
  std::string address = "127.0.0.1:0";  // port 0: any free one
  /// May be empty only on loopback; then every user of this host can connect.
  std::string token;
  std::string job = "job";
  int64_t size = 1;    // ranks of the job
  std::string host;    // the host of all ranks, for errors; empty: not known before they join
  uint64_t epoch = 1;  // the first epoch
  /// Path of a file from which a restarted service continues; "": none, so a restart ends the job.
  std::string journal;
  int64_t silence_ms = 2000;   // a member without a heartbeat for this time is dead
  int64_t reconnect_ms = 400;  // a member without a connection for this time is dead
  int64_t restart_ms = 5000;   // time for members to connect after a restart
};

/// The state of the service, for reports and tests.
struct JobServerStatus {
  uint64_t epoch;
  enum class Stage { kJoining, kRunning, kEnded } stage;
  int64_t members;  // members that have joined and not left
  int64_t keys;
  int64_t connections;   // connections with the token
  int64_t refused;       // connections with another token
  std::string cause;     // cause of the end
  uint64_t fingerprint;  // hash of the state that survives a restart
};

class JobServer {
 public:
  /// Starts the service. Throws as Server does.
  explicit JobServer(const JobServerOptions& options);
  /// Closes all connections. Members see that the service is away; the job does not end.
  ~JobServer();
  JobServer(const JobServer&) = delete;

  /// "127.0.0.1:43210".
  std::string address() const;
  int port() const;
  /// Ends the epoch, if it has not ended, because a rank died; `text` describes the death.
  void report_death(int64_t rank, const std::string& text);
  JobServerStatus status() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::control
