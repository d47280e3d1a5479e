// The logic of a service, as the server (server.h) runs it: a state, and functions of this state and of events. It has
// no clock, socket or thread. The services are the coordination service of a job (job_server.h) and the service of
// replicas (group/group_server.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/control/control.pb.h"

namespace weft::control {

struct ServiceEvent {
  enum class ServiceEventKind {
    kMessage,
    kClosed,  // the connection is gone
    kTick,    // time passes; several times within each limit of the config
    kDeath,   // the process that runs the service knows that a rank died
  };
  ServiceEventKind kind;
  int64_t now_ms;           // time of a steady clock; never decreases
  uint64_t connection = 0;  // kMessage and kClosed: the number of the connection, unique and not 0
  MemberMessage message{};
  Death death{};
};

struct Addressed {
  uint64_t connection;
  ServiceMessage message;
};

struct LogicOutcome {
  std::vector<Addressed> replies = {};
  std::vector<std::string> records = {};  // changes of the state, for the journal
};

class ServiceLogic {
 public:
  virtual ~ServiceLogic() = default;
  /// The transition. The outcome and the new state depend on the old state and the event alone. Never throws.
  virtual LogicOutcome apply(const ServiceEvent& event) = 0;
  /// Makes the changes of a record of the journal. Returns "", or why they do not fit the state.
  virtual std::string commit(const std::string& record) = 0;
  /// The records that turn a new state into this state, except the parts that a restart may lose.
  virtual std::vector<std::string> changes() const = 0;
  /// Whether the journal is the history of the run, and so keeps all its records.
  virtual bool keeps_history() const { return false; }
  /// The title of the journal.
  virtual std::string title() const = 0;
  /// Follows the last record of the journal: members get time to connect.
  virtual void restart(int64_t now_ms) = 0;
  /// Limits of the connections with the token, and of the bytes of one message.
  virtual size_t connections() const = 0;
  virtual size_t message_bytes() const = 0;
};

}  // namespace weft::control
