// File descriptors of the connections between processes, and waits for them while a world connects.
#pragma once
#include <cstdint>
#include <utility>

#include "distributed/comm/store.h"

namespace weft::dist::internal {

/// A file descriptor with an owner.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(o.release()) {}
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

/// Waits for an event of poll(), such as POLLIN; false at the deadline. Throws if the job has ended.
bool wait_for(const Fd& fd, int16_t events, Store& store, Store::Deadline deadline);

}  // namespace weft::dist::internal
