// The connections between the processes of a job: each listens at a port until the others have connected, and accepts
// only connections that show the token of the job.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "distributed/comm/store.h"

namespace weft::dist::wire {

struct ConnectOptions {
  std::string address;    // IP address or host name of this process that the others can reach
  std::string interface;  // or its network interface; neither: the first interface that is not loopback
  std::string token;      // the secret of the job
};

/// The first frame of a connection, from each side; it contains the token. `from` and `to` are process numbers.
std::string hello(int from, int to, const std::string& token);

/// Connects this process, number `mine`, to the others; `names` are for messages. Returns a socket for each of them, -1
/// at its own number. A connection is closed, and has no other effect, if it does not show the token, sends no hello
/// within some seconds, or comes from a process that has connected already. Throws if a process has not connected at
/// the deadline.
std::vector<int> connect_processes(Store& store, int mine, const std::vector<std::string>& names,
                                   const ConnectOptions& options, Store::Deadline deadline);

}  // namespace weft::dist::wire
