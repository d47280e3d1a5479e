// Connects the processes of one host: each opens an abstract unix-domain socket, puts its address into the store, and
// sends the file descriptors of its ranks' segments over a connection to each other process. The connections stay open,
// so that the end of a connection shows the end of a process.
#pragma once
#include <sys/types.h>

#include <memory>
#include <vector>

#include "distributed/comm/fd.h"
#include "distributed/comm/shared/segment.h"
#include "distributed/comm/store.h"

namespace weft::dist::shared {

/// Another process, and its ranks.
struct PeerProcess {
  pid_t pid = 0;
  std::vector<int> ranks;
  std::vector<std::unique_ptr<Segment>> segments;  // index: position in `ranks`
  internal::Fd socket, pidfd;                      // both report the end of the process; pidfd may be missing
};

/// Exchanges segments with the processes of all other ranks below `size`. `own` are the segments of this process. Only
/// processes of the same user are accepted. Throws DeadlineExceeded, naming the ranks that are missing.
std::vector<PeerProcess> connect_processes(Store& store, int size, const std::vector<Segment*>& own,
                                           Store::Deadline deadline);

}  // namespace weft::dist::shared
