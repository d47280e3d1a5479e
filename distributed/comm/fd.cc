#include "distributed/comm/fd.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

namespace weft::dist::internal {

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

bool wait_for(const Fd& fd, int16_t events, Store& store, Store::Deadline deadline) {
  while (true) {
    store.check();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd p{fd.get(), events, 0};
    if (poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 100))) > 0) return true;
    if (left <= 0) return false;
  }
}

}  // namespace weft::dist::internal
