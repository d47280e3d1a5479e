// Communicators between processes of one host, through shared memory. They give the bits of thread ranks
// (distributed/comm/threads.h), and the same errors.
//
// A process has one rank or several, each used by one thread at a time. Operands may be in private memory; they pass
// through shared memory in pieces, so that it stays small. Reductions combine rank 0, 1, 2, ... from the left.
//
// No lock is shared between processes. If a process ends, communicators with its ranks fail on all other ranks within
// milliseconds, with a sentence that names the rank and the process. A process that stops for a while fails nothing
// before the deadline of wait(). The kernel frees all memory when the last process has ended, however they end.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "distributed/comm/process_world.h"
#include "distributed/comm/store.h"

namespace weft::dist {

struct SharedWorldOptions {
  /// Address range reserved for each rank's shared memory; pages take memory only when they are written.
  int64_t reserve_bytes = int64_t{64} << 30;
  /// Largest piece of an operand that passes through shared memory, in bytes; equal in all processes. A rank has memory
  /// for a few pieces in each communicator with collectives under way.
  int64_t piece_bytes = 512 << 10;
  /// How long to wait for other processes to join, and to create a communicator.
  std::chrono::nanoseconds timeout = std::chrono::seconds(kDefaultTimeout);
  /// A thread of this process does the ranks' parts of collectives while they compute.
  bool progress_thread = true;
  /// How long a waiting thread yields its core to others before it sleeps.
  std::chrono::nanoseconds spin = std::chrono::microseconds(200);
};

/// Joins a world of `size` ranks, of which this process owns `local_ranks`. Returns when all ranks have joined.
std::unique_ptr<ProcessWorld> make_shared_world(Store& store, int size, std::vector<int> local_ranks,
                                                const SharedWorldOptions& options = {});

}  // namespace weft::dist
