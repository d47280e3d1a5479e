// SharedHeap: memory of one rank that the other processes of the host can read and write: control areas, copies of
// small operands, and pieces of large ones.
#pragma once
#include <cstdint>
#include <map>

#include "distributed/comm/shared/segment.h"
#include "framework/base/mutex.h"

namespace weft::dist {

class SharedHeap {
 public:
  explicit SharedHeap(shared::Segment& segment);
  /// Uninitialised memory of `bytes`, aligned to 64. Throws ResourceExhausted.
  void* allocate(int64_t bytes);
  /// Frees a block that allocate() returned.
  void free(void* p);
  /// Bytes in use now.
  int64_t in_use() const;

 private:
  shared::Segment& segment_;
  mutable Mutex mutex_;
  std::map<uint64_t, int64_t> used_, free_;  // offset -> bytes; adjacent free blocks are merged
  uint64_t end_;                             // end of the last block
  int64_t in_use_ = 0;
};

}  // namespace weft::dist
