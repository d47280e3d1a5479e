#include "distributed/comm/shared/heap.h"

#include <algorithm>

#include "framework/base/error.h"

namespace weft::dist {
namespace {
constexpr int64_t kAlignment = 64;
template <class T>
T aligned(T n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}
}  // namespace

SharedHeap::SharedHeap(shared::Segment& segment)
    : segment_(segment), end_(aligned<uint64_t>(sizeof(shared::SegmentHeader))) {}

void* SharedHeap::allocate(int64_t bytes) {
  WEFT_CHECK(bytes >= 0 && bytes <= segment_.reserve(), "shared heap: asked for ", bytes, " bytes; need 0 to ",
             segment_.reserve());
  const int64_t size = aligned(std::max<int64_t>(bytes, 1));
  MutexLock lock(mutex_);
  // Chooses the smallest block that fits: programs use blocks of the same few sizes.
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it)
    if (it->second >= size && (best == free_.end() || it->second < best->second)) best = it;
  uint64_t offset = end_;
  if (best != free_.end()) {
    offset = best->first;
    const int64_t rest = best->second - size;
    free_.erase(best);
    if (rest) free_[offset + size] = rest;
  } else {
    // The last block may be free: it is extended.
    if (!free_.empty() && free_.rbegin()->first + free_.rbegin()->second == end_) offset = free_.rbegin()->first;
    segment_.grow(static_cast<int64_t>(offset) + size);
    if (offset != end_) free_.erase(offset);
    end_ = offset + size;
  }
  used_[offset] = size;
  in_use_ += size;
  return segment_.at(offset);
}

void SharedHeap::free(void* p) {
  if (!p) return;
  MutexLock lock(mutex_);
  const auto block = used_.find(segment_.offset_of(p));
  WEFT_CHECK(block != used_.end(), "shared heap: free of an address that allocate() did not return");
  auto [offset, size] = *block;
  used_.erase(block);
  in_use_ -= size;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_[offset] = size;
}

int64_t SharedHeap::in_use() const {
  MutexLock lock(mutex_);
  return in_use_;
}

}  // namespace weft::dist
