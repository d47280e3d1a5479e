// The connection of a member to its service (server.h), over gRPC: it connects again after each end. One thread calls
// the member, and needs no lock that a computation holds.
//
// gRPC starts threads when a process makes its first client or server, and may keep them. After that, the process must
// not fork without an immediate exec. Destroy the talker before main returns.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "distributed/control/control.pb.h"
#include "framework/base/mutex.h"

namespace weft::control {

/// The member. The thread calls all functions but after() with Talker::mutex.
class TalkUser {
 public:
  virtual ~TalkUser() = default;
  virtual bool wants_connection() const = 0;
  virtual void connected(int64_t now_ms) = 0;
  virtual void closed() = 0;
  virtual void received(int64_t now_ms, const ServiceMessage& message) = 0;
  /// The service has another token.
  virtual void refused(int64_t now_ms) = 0;
  /// Follows at least each 50 ms.
  virtual void tick(int64_t now_ms) = 0;
  /// Follows each of these calls, without the mutex.
  virtual void after() {}
};

class Talker {
 public:
  /// Starts when start() is called. `user` must outlive this.
  Talker(const std::string& address, const std::string& token, TalkUser& user);
  /// Closes the connection.
  ~Talker();
  Talker(const Talker&) = delete;

  void start();
  /// Sends a message over the present connection; without one, drops it. The caller holds the mutex.
  void send(MemberMessage message);
  /// Guards the user's state.
  Mutex& mutex();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::control
