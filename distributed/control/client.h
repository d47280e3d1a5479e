// One member of a job at its coordination service (server.h), over gRPC.
//
// A thread of the client sends a heartbeat each 200 ms and needs no lock that a computation holds. If the service
// restarts, the client connects again; requests wait for it until their deadline. A service in the process of a rank
// does not restart: if it does not answer for 2 s, that rank has died or is stopped. When the epoch ends (a rank died,
// or some rank aborted), the service sends the cause: each request then throws it, waiting ones at once.
//
// Every wait has a deadline on the steady clock. Errors are weft::Error: kDeadlineExceeded, kUnavailable (a rank died,
// or the service is away), kPermissionDenied (another token), kFailedPrecondition (ranks do not fit together), or the
// code of an abort.
//
// gRPC starts threads when a process makes its first client or server, and may keep them. After that, the process must
// not fork without an immediate exec. Destroy the client before main returns.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"

namespace weft::control {

using Deadline = std::chrono::steady_clock::time_point;

struct ClientOptions {
  std::string address;  // address of the service, "host:port"
  std::string token;    // see token.h
  std::string job = "job";
  uint64_t epoch = 1;  // counts the starts of the job
  int64_t rank = 0, size = 1;
  int64_t service_rank = -1;           // the rank whose process has the service; -1: it is elsewhere
  std::string host;                    // "": this host's name
  std::vector<std::string> endpoints;  // where other ranks reach this one; at most 8
  /// Values that must be equal on all ranks, by name: plan, switches, seed, flags, binary. At most 64, of 256 bytes
  /// each.
  std::vector<std::pair<std::string, std::string>> facts;
  /// Set if this process has failed before it joined: the service ends the epoch with this cause, and join() throws it.
  std::optional<Error> failure;
  std::chrono::milliseconds beat{200};
  /// The phase that heartbeats report. Called by the client's thread; must not wait.
  const char* (*phase)() = nullptr;
  /// join() calls it each `report_every` while it waits, with the ranks that it waits for. It may throw: join() ends.
  std::function<void(const std::string&)> waiting;
  std::chrono::milliseconds report_every{10000};
  /// Timeout of join(), and of requests without a deadline.
  std::chrono::milliseconds timeout{600000};
};

/// A rank as the others see it.
struct PeerRank {
  int64_t rank;
  std::string host;
  int64_t pid;
  std::vector<std::string> endpoints;
};

/// Why an epoch ended.
struct Ending {
  bool finished;  // all members left; there is no cause
  Code code;
  std::string text;
  int64_t rank;  // the failed rank; -1: no single rank failed
};

class Client {
 public:
  /// Starts to connect and to join. Throws on invalid options. Does not wait.
  explicit Client(const ClientOptions& options);
  /// Closes the connection. Without leave() or abort(), the service reports to the others that this rank died.
  ~Client();
  Client(const Client&) = delete;

  /// Waits until all ranks have joined. Returns them by rank. If their facts differ, throws an error that names the
  /// ranks that differ.
  const std::vector<PeerRank>& join();

  /// Sets a key, for all ranks. A later set replaces the value. Keys have up to 256 bytes, values 1 MiB.
  void set(const std::string& key, const std::string& value);
  void set(const std::string& key, const std::string& value, Deadline deadline);
  /// Waits until some rank has set the key. Returns its value.
  std::string get(const std::string& key, Deadline deadline);
  /// Waits until all ranks that have not left are in the barrier of this name. A name can be used again.
  void barrier(const std::string& name, Deadline deadline);

  /// The step that heartbeats report. Takes no lock.
  void progress(uint64_t step);

  /// Ends the epoch for all ranks. Waits up to a second for the service. If it has ended, the first cause stays.
  void abort(Code code, const std::string& text);
  /// abort() because another rank died: for example, its data connection ended.
  void report_death(int64_t rank, const std::string& text);
  /// This rank is done; the others continue without it. No requests are possible afterwards.
  void leave();

  /// Why the epoch ended, if it has.
  std::optional<Ending> ended() const;
  /// The client's thread calls `fn` once, when the epoch ends with a cause (soon, if it has ended already). `fn` must
  /// not wait and must not call the client.
  void on_end(std::function<void(const Ending&)> fn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::control
