// Connects the processes of one host: each opens an abstract unix-domain socket, puts its address into the store, and
// sends the file descriptors of its ranks' segments over a connection to each other process. The connections stay open,
// so that the end of a connection shows the end of a process.
#pragma once
#include <sys/types.h>

#include <memory>
#include <utility>
#include <vector>

#include "distributed/comm/shared/segment.h"
#include "distributed/comm/store.h"

namespace weft::dist::shared {

/// A file descriptor with an owner.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// Another process, and its ranks.
struct PeerProcess {
  pid_t pid = 0;
  std::vector<int> ranks;
  std::vector<std::unique_ptr<Segment>> segments;  // by position in `ranks`
  Fd socket, pidfd;                                // both report the end of the process; pidfd may be missing
};

/// Exchanges segments with the processes of all other ranks below `size`. `own` are the segments of this process. Only
/// processes of the same user are accepted. Throws DeadlineExceeded, naming the ranks that are missing.
std::vector<PeerProcess> connect_processes(Store& store, int size, const std::vector<Segment*>& own,
                                           Store::Deadline deadline);

}  // namespace weft::dist::shared
