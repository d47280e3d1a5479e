// Links: ordered frames from this process to another process, or to itself. Threads of their own send and receive, so
// collectives advance while ranks compute.
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
  std::vector<char> bytes;  // the payload, unless `write` is set
  std::function<bool(char*)>
      write;  // writes the header.bytes bytes of the payload just before they are sent; false: drop the frame
};

/// Functions that a link calls on its own threads. They must not wait for other frames.
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
  /// Sends the appended frames and ends; waits for the other process only for a moment.
  virtual void close() = 0;
};

/// The link of a process to itself; `process` is its own number.
std::unique_ptr<Link> make_own_link(int process, LinkEvents events);

/// The TCP connections of this process to the others of a job, which one thread of Gloo serves.
class Connections {
 public:
  /// Owns the sockets of connected processes, by process number; -1 at its own. A connection is cut if the other host
  /// has not answered for `silence`.
  Connections(const std::vector<int>& sockets, std::chrono::nanoseconds silence);
  ~Connections();
  /// Begins to receive. The events are called until close().
  void start(LinkEvents events);
  /// The link to another process. Call start() first.
  Link& link(int process);
  /// Receives in this thread until a frame of one of these processes has come; false if none comes within a short time.
  bool poll(const std::vector<int>& processes);
  /// Ends all connections.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::dist::wire
