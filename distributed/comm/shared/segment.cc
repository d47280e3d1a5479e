#include "distributed/comm/shared/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "framework/base/error.h"

namespace weft::dist::shared {

Segment::Segment(int rank, int64_t reserve) : rank_(rank), reserve_(reserve) {
  WEFT_CHECK(reserve >= static_cast<int64_t>(2 * sizeof(SegmentHeader)), "shared memory: ", reserve,
             " bytes are reserved for rank ", rank, "; need at least ", 2 * sizeof(SegmentHeader));
  fd_ = memfd_create(str_cat("weft-rank-", rank).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  WEFT_CHECK_AS(kResourceExhausted, fd_ >= 0, "shared memory: memfd_create failed: ", std::strerror(errno));
  try {
    grow(sizeof(SegmentHeader));
    // A read beyond the end of the file kills a peer, so the file must not shrink.
    const int sealed = fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
    WEFT_CHECK_AS(kInternal, sealed == 0, "shared memory: cannot seal: ", std::strerror(errno));
    map();
  } catch (...) {
    close(fd_);
    throw;
  }
  header().rank = rank;
  header().progress_rank = rank;
  header().magic = SegmentHeader::kMagic;
}

Segment::Segment(int rank, int64_t reserve, int fd) : rank_(rank), fd_(fd), reserve_(reserve) {
  try {
    struct stat s = {};
    const bool sized = fstat(fd_, &s) == 0 && s.st_size >= static_cast<int64_t>(sizeof(SegmentHeader));
    WEFT_CHECK(sized && (fcntl(fd_, F_GET_SEALS) & F_SEAL_SHRINK), "shared memory: rank ", rank,
               " sent a file that is not a sealed segment");
    map();
    if (header().magic != SegmentHeader::kMagic || header().rank != rank) {
      munmap(base_, reserve_);
      WEFT_CHECK(false, "shared memory: rank ", rank, " sent a file that is not its segment");
    }
  } catch (...) {
    close(fd_);
    throw;
  }
}

Segment::~Segment() {
  munmap(base_, reserve_);
  close(fd_);
}

void Segment::map() {
  void* p = mmap(nullptr, reserve_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  WEFT_CHECK_AS(kResourceExhausted, p != MAP_FAILED, "shared memory: cannot reserve ", reserve_,
                " bytes of addresses for rank ", rank_, ": ", std::strerror(errno),
                "; need no limit of addresses (ulimit -v), or the transport gloo");
  madvise(p, reserve_, MADV_DONTDUMP);
  base_ = static_cast<char*>(p);
}

void Segment::grow(int64_t bytes) {
  if (bytes <= size_) return;
  WEFT_CHECK_AS(kResourceExhausted, bytes <= reserve_, "shared memory: rank ", rank_, " needs ", bytes, " bytes, and ",
                reserve_, " are reserved");
  // Grows in large steps for few calls: pages take memory only once they are written.
  const int64_t size = std::min(reserve_, std::max(bytes, size_ + size_ / 2));
  WEFT_CHECK_AS(kResourceExhausted, ftruncate(fd_, size) == 0, "shared memory: cannot grow the segment of rank ", rank_,
                " to ", size, " bytes: ", std::strerror(errno));
  size_ = size;
}

void Segment::publish(uint64_t key, uint64_t offset) {
  SegmentHeader& h = header();
  const uint32_t i = h.entries.load(std::memory_order_relaxed);
  WEFT_CHECK_AS(kResourceExhausted, i < kDirectory, "shared memory: rank ", rank_, " has made ", kDirectory,
                " communicators; need fewer");
  h.directory[i].offset = offset;
  h.directory[i].key.store(key, std::memory_order_release);
  h.entries.store(i + 1, std::memory_order_release);
}

uint64_t Segment::find(uint64_t key) const {
  const SegmentHeader& h = header();
  // Starts at the newest entries, since most searches are for these.
  for (uint32_t i = std::min(h.entries.load(std::memory_order_acquire), kDirectory); i-- > 0;)
    if (h.directory[i].key.load(std::memory_order_acquire) == key) return h.directory[i].offset;
  return 0;
}

}  // namespace weft::dist::shared
