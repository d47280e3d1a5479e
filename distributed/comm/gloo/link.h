// Links: ordered frames from this process to another one, or to itself. A link has threads that send and receive, so
// collectives advance while ranks compute.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/comm/gloo/frame.h"
#include "distributed/comm/store.h"

namespace weft::dist::wire {

/// A frame to be sent.
struct Outgoing {
  FrameHeader header;
  std::vector<char> bytes;  // the payload,
  std::function<bool(char*)>
      write;  // or writes header.bytes of it when its turn has come; false: nothing is to be sent
};

/// What a link calls from its own threads. Calls must not wait for other frames.
struct LinkEvents {
  /// A frame has arrived; throws if its content is wrong, which ends the connection.
  std::function<void(int process, const FrameHeader&, const char* payload)> frame;
  /// The connection has ended; no frame follows.
  std::function<void(int process)> lost;
};

class Link {
 public:
  virtual ~Link() = default;
  /// Appends a frame. Does not wait; drops it if the connection has ended.
  virtual void send(Outgoing frame) = 0;
  /// Sends what has been appended and ends the threads; waits for the other process only for a moment.
  virtual void close() = 0;
};

/// The link of a process to itself; `process` is its own number.
std::unique_ptr<Link> make_own_link(int process, LinkEvents events);

struct ConnectOptions {
  std::string address;               // IP address or host name of this process that others can reach
  std::string interface;             // or its network interface
  std::chrono::nanoseconds silence;  // a connection is cut if the other host has not answered for this long
};

/// The TCP connections of this process to the others of a job.
class Connections {
 public:
  /// Connects to the other processes; this one is number `mine`, and `names` are for messages. Throws if one is not
  /// there at the deadline.
  Connections(Store& store, int mine, const std::vector<std::string>& names, const ConnectOptions& options,
              Store::Deadline deadline);
  ~Connections();
  /// Begins to receive. The events are called until close().
  void start(LinkEvents events);
  /// The link to another process. After start().
  Link& link(int process);
  /// Ends all connections.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::dist::wire
