// The logic of the coordination service: a function of a state and an event. It has no clock, socket or thread: events
// carry the time. The server (server.h) and the simulator (simulate_test.cc) run this code.
//
// A job has epochs. In one epoch `size` ranks join, once: they form the one world of the epoch. The epoch ends when all
// members have left, or with the first cause: an abort, a death, or joins with different facts. All members get the
// cause. A later epoch can start only after that.
//
// A message changes the state only if it has the epoch, the rank and the incarnation of a member and comes over the
// member's latest connection. Each request has a number. A request that arrives twice is executed once and answered
// twice. So a member without an answer can resend its request, even to a restarted service.
//
// Changes that must survive a restart are returned as records (Change). The server writes them to its journal before it
// sends the replies. Connections, times of heartbeats and waiting requests are not recorded: members reconnect and
// resend unanswered requests.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "distributed/control/service/logic.h"

namespace weft::control {

/// Limits of the state that members can create in the service.
struct ServiceLimits {
  uint32_t members = 4096;
  size_t name_bytes = 256;  // limit of a name: key, barrier, host, endpoint, fact
  size_t text_bytes = 4000;
  size_t value_bytes = size_t{1} << 20;
  size_t keys = 65536;
  size_t stored_bytes = size_t{256} << 20;  // limit of the sum of all keys and values
  uint64_t requests = 64;                   // unanswered requests of one member
  int endpoints = 8, facts = 64;
  uint64_t wait_ms = 604800000;  // one week
};

struct ServiceConfig {
  std::string job;
  uint32_t size = 1;   // ranks of the world
  std::string host;    // the host of all ranks; empty: not known before they join
  uint64_t epoch = 1;  // the first epoch
  /// A member without a heartbeat for this time is dead.
  int64_t silence_ms = 2000;
  /// A member without a connection for this time is dead.
  int64_t reconnect_ms = 400;
  /// Time for members to connect after a restart of the service.
  int64_t restart_ms = 5000;
  /// If the service itself did not run for this time, the gap does not count as silence of members.
  int64_t stall_ms = 500;
  ServiceLimits limits;
};

struct Member {
  Process process;
  std::vector<Fact> facts;
  bool left = false;
  std::map<uint64_t, Failure> answers;  // answers to requests from `floor` on; code 0: done
  uint64_t floor = 1;
  // The fields below are lost when the service restarts.
  uint64_t connection = 0;  // 0: none
  uint64_t signal = 0;      // the number of its latest join or beat
  int64_t heard_ms = 0;
  int64_t closed_ms = -1;  // when its connection closed; -1: it has one
  uint64_t step = 0;
  std::string phase;
};

using RequestId = std::pair<uint32_t, uint64_t>;  // rank, number

/// A get or a barrier that is not answered yet.
struct WaitingRequest {
  bool barrier;
  std::string name;
  int64_t begin_ms, deadline_ms;
};

struct ServiceState {
  enum class Stage { kJoining, kRunning, kEnded };

  explicit ServiceState(ServiceConfig c) : config(std::move(c)), epoch(config.epoch) {}

  ServiceConfig config;
  uint64_t epoch;
  Stage stage = Stage::kJoining;
  End end;  // set in kEnded
  std::map<uint32_t, Member> members;
  std::map<std::string, std::string> keys;
  size_t stored_bytes = 0;
  std::map<RequestId, WaitingRequest> waiting;
  std::map<std::string, std::vector<RequestId>> barriers, gets;  // the same, by name and key
  int64_t now_ms = 0;
};

struct Outcome {
  std::vector<Addressed> replies;
  std::vector<Change> changes;  // already made in the state
};

/// The transition. The outcome and the new state depend on the old state and the event alone. Never throws.
Outcome apply(ServiceState& state, const ServiceEvent& event);

/// Makes a change of the journal. Returns false, and changes nothing, if it does not fit the state.
bool commit(ServiceState& state, const Change& change);
/// The changes that turn a new state into this state, except the parts that a restart may lose.
std::vector<Change> changes_of(const ServiceState& state);
/// The title of the journal of this state.
std::string title_of(const ServiceState& state);
/// Changes of one event as a record of the journal, and its reader: makes the changes, and returns "" or why they do
/// not fit.
std::string record_of(const std::vector<Change>& changes);
std::string commit(ServiceState& state, const std::string& record);
/// Call it after the last change of the journal: members get `restart_ms` to connect.
void restart(ServiceState& state, int64_t now_ms);

/// The first error in the form or the sizes of a message; "" if there is none.
std::string problem_of(const MemberMessage& message, const ServiceLimits& limits);
/// "rank 2 (host b, pid 7)".
std::string name_of(const Process& process);

}  // namespace weft::control
