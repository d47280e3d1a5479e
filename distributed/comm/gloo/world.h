// Communicators between processes of different hosts, over TCP. They give the bits of thread ranks
// (distributed/comm/threads.h), and the same errors. The connections are served by Gloo's event loop; frames and
// collectives are Weft's own: reductions combine rank 0, 1, 2, ... from the left.
//
// A process has one rank or several, each used by one thread at a time. Threads of the process send, receive and
// combine while the ranks compute. A rank's collective is done when its own result is complete and its operands are
// free; so when a collective fails, some ranks may have its result and others not.
//
// If a process ends, or its host does not answer for `silence`, communicators with its ranks fail on all other ranks,
// with a sentence that names the rank. A process that stops for a while fails nothing before the deadline of wait(),
// because its host still answers.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "distributed/comm/process_world.h"
#include "distributed/comm/store.h"

namespace weft::dist {

struct GlooWorldOptions {
  /// IP address or host name of this process that the others can reach. Empty: 127.0.0.1 if all are on one host, else
  /// the first address of this host outside the loopback interface, IPv4 before IPv6.
  std::string address;
  /// The network interface to use instead of `address`, such as "eth0".
  std::string interface;
  /// How long to wait for other processes to join, and to create a communicator.
  std::chrono::nanoseconds timeout = std::chrono::seconds(kDefaultTimeout);
  /// A connection is cut if the other host has not answered for this long.
  std::chrono::nanoseconds silence = std::chrono::seconds(5);
  /// Time from the first mismatch of two ranks until the communicator fails; earlier if all ranks have started a
  /// collective. Meanwhile other requests may arrive and show which rank is wrong.
  std::chrono::nanoseconds settles = std::chrono::milliseconds(40);
};

/// Joins a world of `size` ranks, of which this process owns `local_ranks`. Returns when all ranks have joined.
std::unique_ptr<ProcessWorld> make_gloo_world(Store& store, int size, std::vector<int> local_ranks,
                                              const GlooWorldOptions& options = {});

}  // namespace weft::dist
