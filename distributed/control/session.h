// The logic of one member of a job at the coordination service, without clock, socket or thread: it decides which
// messages to send when, and interprets the answers. The client (client.h) and the simulator run it. Times are ms of a
// steady clock.
//
// A request is sent until it is answered: again over each new connection, and after `resend_ms`. The service executes
// it once. After the end of the epoch, each request fails with the cause of the end.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "distributed/control/control.pb.h"

namespace weft::control {

struct SessionConfig {
  std::string job;
  uint64_t epoch = 1;
  uint32_t rank = 0, size = 1;
  uint64_t incarnation = 0;  // a random number, not 0
  std::string service;       // its address, for errors
  std::string host;
  uint32_t pid = 0;
  std::vector<std::string> endpoints;
  /// Values that must be equal on all ranks, such as {"plan", "1f3a..."}.
  std::vector<std::pair<std::string, std::string>> facts;
  /// Set if this member has failed before it joined: the service ends the epoch with this cause.
  std::optional<Failure> failure;
  int64_t beat_ms = 200;
  int64_t resend_ms = 5000;
  /// Extra time after the service's deadline before a member gives up a request.
  int64_t grace_ms = 1000;
  /// The rank whose process runs the service: if it does not answer for `silence_ms`, this rank is dead or stopped. -1:
  /// the service is elsewhere, and members wait for its restart.
  int32_t service_rank = -1;
  int64_t silence_ms = 2000;
  /// If this member itself did not run for this time, the gap does not count as silence.
  int64_t stall_ms = 500;
  /// When the join begins, and when it fails without a world, unless the service has an earlier cause.
  int64_t join_begin_ms = 0, join_deadline_ms = 0;
};

/// The answer to a request: success, a value, or a failure.
struct Answer {
  uint64_t sequence = 0;
  Failure failure;  // code 0: none
  std::string value;
};

class Session {
 public:
  static constexpr size_t kRequests = 32;  // limit of unanswered requests; lower than the service's limit

  struct SessionOutput {
    std::vector<MemberMessage> messages;  // messages to send, in this order
    std::vector<Answer> answers;
  };

  explicit Session(SessionConfig config) : config_(std::move(config)) {}

  /// A new connection is ready for messages.
  void connected(int64_t now_ms, SessionOutput& out);
  void closed() { connected_ = bound_ = false; }
  void received(int64_t now_ms, const ServiceMessage& message, SessionOutput& out);
  /// Call it several times within `beat_ms`.
  void tick(int64_t now_ms, SessionOutput& out);

  /// Starts a request: set, get, barrier, abort, death or leave, without header and wait. Returns its number. It is
  /// answered by `deadline_ms` plus `grace_ms`.
  uint64_t request(int64_t now_ms, MemberMessage content, int64_t deadline_ms, SessionOutput& out);
  /// Whether another request may start.
  bool has_room() const { return pending_.size() < kRequests; }
  void progress(uint64_t step, const std::string& phase) {
    step_ = step;
    phase_ = phase;
  }

  /// The world; null before it is complete.
  const World* world() const { return world_ ? &*world_ : nullptr; }
  /// Why the epoch ended, or why this member was refused; null before.
  const End* end() const { return end_ ? &*end_ : nullptr; }
  bool left() const { return left_; }
  /// Why the join still waits: "rank 1 of 2 has not joined the coordination service at 127.0.0.1:29500".
  std::string missing() const;
  const SessionConfig& config() const { return config_; }

 private:
  struct PendingMessage {
    MemberMessage message;
    int64_t begin_ms, deadline_ms, sent_ms;  // sent_ms -1: not sent over this connection
  };

  MemberMessage headed(MemberMessage m, uint64_t sequence) const;
  void send_join(int64_t now_ms, SessionOutput& out);
  void send(int64_t now_ms, PendingMessage& p, SessionOutput& out);
  void send_pending(int64_t now_ms, SessionOutput& out);
  void finish(uint64_t sequence, Failure failure, std::string value, SessionOutput& out);
  void set_end(const End& end, SessionOutput& out);
  void give_up_join(int64_t now_ms, SessionOutput& out);
  void find_silence(int64_t now_ms, SessionOutput& out);

  SessionConfig config_;
  bool connected_ = false;
  bool bound_ = false;  // the service has answered the join of this connection with the world
  uint64_t signal_ = 0, sequence_ = 0;
  int64_t signalled_ms_ = 0;
  int64_t heard_ms_ = 0, ticked_ms_ = 0;  // times of the service's latest message (0: none) and of the latest tick
  std::map<uint64_t, PendingMessage> pending_;
  std::optional<World> world_;
  std::optional<End> end_;
  bool left_ = false, gave_up_ = false;
  std::string missing_;  // missing(), as the service reported it
  uint64_t step_ = 0;
  std::string phase_;
};

}  // namespace weft::control
