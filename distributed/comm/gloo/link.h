// Links: ordered frames from this process to another one, or to itself. Other threads than those of ranks send and
// receive, so collectives advance while ranks compute.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/comm/gloo/frame.h"

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
  /// Sends what has been appended and ends; waits for the other process only for a moment.
  virtual void close() = 0;
};

/// The link of a process to itself; `process` is its own number.
std::unique_ptr<Link> make_own_link(int process, LinkEvents events);

/// The TCP connections of this process to the others of a job, which one thread of Gloo serves.
class Connections {
 public:
  /// Takes the sockets of connected processes, by number; -1 at its own. A connection is cut if the other host has not
  /// answered for `silence`.
  Connections(const std::vector<int>& sockets, std::chrono::nanoseconds silence);
  ~Connections();
  /// Begins to receive. The events are called until close().
  void start(LinkEvents events);
  /// The link to another process. After start().
  Link& link(int process);
  /// Receives in this thread until a frame of one of these processes has come; false if none has in a short time.
  bool poll(const std::vector<int>& processes);
  /// Ends all connections.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::dist::wire
