#include "framework/cuda/device_allocator.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/graph_replay.h"
#include "framework/cuda/libraries/driver_error.h"

namespace weft::cuda {
namespace {

constexpr int64_t kAlign = 512;  // alignment of a block's size and address
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kSmall = 1 * kMiB;  // blocks up to this size share segments of kSmallSegment bytes
constexpr int64_t kSmallSegment = 2 * kMiB;
constexpr int64_t kLarge = 10 * kMiB;         // blocks from kSmall to this size share segments of kLargeSegment bytes
constexpr int64_t kLargeSegment = 20 * kMiB;  // blocks of kLarge bytes and more have their own segment

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
int64_t accounted(int64_t bytes) { return round_up(bytes, 64); }

}  // namespace

DeviceAllocator::DeviceAllocator(Gpu& gpu) : gpu_(gpu) {}

DeviceAllocator::~DeviceAllocator() {
  waiting_.clear();
  for (auto& [address, block] : blocks_)
    if (!block->before) ignore(driver().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(address)));
}

void* DeviceAllocator::allocate(int64_t bytes) {
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kAlign), counted = accounted(std::max<int64_t>(bytes, 1));
  const bool small = size <= kSmall;
  MutexLock lock(mutex_);
  if (limit_ > 0 && stats_.live + counted > limit_) [[unlikely]]
    out_of_memory(bytes, str_cat("the limit of ", bytes_text(limit_), " set for this device is reached"));
  if (!waiting_.empty() && !thread_is_capturing()) settle(false);
  FreeSet& set = small ? small_ : large_;
  DeviceBlock* block = take(set, size);
  if (!block) {
    block = grow(size, small);
    if (!block) out_of_memory(bytes, "the driver has no more");
  }
  // Return the unused rest of the block, unless it is too small to be useful.
  const int64_t rest = block->bytes - size;
  if (rest >= (small ? kAlign : kSmall)) {
    auto tail = std::make_unique<DeviceBlock>();
    tail->address = block->address + size;
    tail->bytes = rest;
    tail->small = small;
    tail->free = true;
    tail->before = block;
    tail->after = block->after;
    if (tail->after) tail->after->before = tail.get();
    block->after = tail.get();
    block->bytes = size;
    set.insert(tail.get());
    blocks_[tail->address] = std::move(tail);
  }
  block->asked = bytes;
  block->counted = counted;
  stats_.cached -= block->bytes;
  stats_.live += counted;
  stats_.peak = std::max(stats_.peak, stats_.live);
  stats_.step_peak = std::max(stats_.step_peak, stats_.live);
  ++stats_.allocations;
  return block->address;
}

// The smallest free block that is large enough, or null.
DeviceAllocator::DeviceBlock* DeviceAllocator::take(FreeSet& set, int64_t bytes) {
  DeviceBlock key;
  key.bytes = bytes;
  auto it = set.lower_bound(&key);
  if (it == set.end()) return nullptr;
  // Do not split a block that has its own segment for a much smaller tensor: the next large tensor would not find it.
  if (bytes > kSmall && bytes < kLarge && (*it)->bytes > kLargeSegment && (*it)->bytes > 4 * bytes) return nullptr;
  DeviceBlock* block = *it;
  set.erase(it);
  block->free = false;
  return block;
}

// A new segment as one block outside the free sets; null if the driver has too little memory.
DeviceAllocator::DeviceBlock* DeviceAllocator::grow(int64_t bytes, bool small) {
  WEFT_CHECK_AS(kFailedPrecondition, !thread_is_capturing(), "cuda: ", bytes_text(bytes),
                " of device memory are needed while a graph is captured, but no free block is large enough; "
                "need to run the work once before, or to allocate outside of the capture");
  const int64_t wanted = small ? kSmallSegment : bytes < kLarge ? kLargeSegment : round_up(bytes, 2 * kMiB);
  gpu_.make_current();
  CUdeviceptr p = 0;
  CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
  // Attempt 0 allocates as planned. Attempt 1 follows the return of free memory. Attempt 2 asks for the needed bytes
  // only, and accepts any free block.
  for (int attempt = 0; attempt < 3 && r == CUDA_ERROR_OUT_OF_MEMORY; ++attempt) {
    if (attempt == 1) {
      settle(true);
      if (DeviceBlock* block = take(small ? small_ : large_, bytes)) return block;
      return_segments();
    }
    if (attempt == 2) {
      FreeSet& set = small ? small_ : large_;
      DeviceBlock key;
      key.bytes = bytes;
      if (auto it = set.lower_bound(&key); it != set.end()) {
        DeviceBlock* block = *it;
        set.erase(it);
        block->free = false;
        return block;
      }
    }
    const int64_t size = attempt < 2 ? wanted : round_up(bytes, kAlign);
    r = driver().cuMemAlloc_v2(&p, size);
    if (r == CUDA_SUCCESS) {
      auto block = std::make_unique<DeviceBlock>();
      DeviceBlock* out = block.get();
      out->address = reinterpret_cast<char*>(p);
      out->bytes = size;
      out->small = small;
      reserved_ += size;
      stats_.cached += size;
      ++stats_.system_allocations;
      blocks_[out->address] = std::move(block);
      return out;
    }
  }
  if (r != CUDA_ERROR_OUT_OF_MEMORY) check(r, "allocating ", bytes_text(bytes), " on ", gpu_.device());
  return nullptr;
}

void DeviceAllocator::deallocate(void* p, int64_t bytes) {
  MutexLock lock(mutex_);
  auto it = blocks_.find(static_cast<char*>(p));
  WEFT_BUG_IF(it == blocks_.end() || it->second->counted == 0, "memory given back that is not live on ", gpu_.device());
  DeviceBlock* block = it->second.get();
  stats_.live -= block->counted;
  stats_.cached += block->bytes;
  block->counted = 0;
  block->name.clear();
  if (poison_ && !thread_is_capturing()) {
    gpu_.make_current();
    ignore(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(block->address), 0xff, block->bytes,
                                    gpu_.stream().handle()));
  }
  if (block->used_by.empty()) return put(block);
  waiting_.push_back({block, std::move(block->used_by), {}});
  block->used_by.clear();
  if (!thread_is_capturing()) mark(waiting_.back());
}

// Records the current positions of the other streams. A device that has failed runs nothing more, so there is nothing
// to wait for; destructors call this.
void DeviceAllocator::mark(FreedBlock& w) {
  try {
    for (Stream* stream : w.streams) {
      w.events.push_back(std::make_unique<Event>(gpu_));
      w.events.back()->record(*stream);
    }
  } catch (const Error&) {
    w.events.clear();
  }
  w.streams.clear();
}

// Puts a block into its free set and merges it with free neighbours.
void DeviceAllocator::put(DeviceBlock* block) {
  FreeSet& set = block->small ? small_ : large_;
  auto absorb = [&](DeviceBlock* into, DeviceBlock* gone) {
    into->bytes += gone->bytes;
    into->after = gone->after;
    if (into->after) into->after->before = into;
    blocks_.erase(gone->address);
  };
  if (DeviceBlock* next = block->after; next && next->free) {
    set.erase(next);
    absorb(block, next);
  }
  if (DeviceBlock* previous = block->before; previous && previous->free) {
    set.erase(previous);
    absorb(previous, block);
    block = previous;
  }
  block->free = true;
  set.insert(block);
}

// Frees blocks whose other streams are done; with `wait`, waits for them.
void DeviceAllocator::settle(bool wait) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    bool done = true;
    if (!it->streams.empty()) mark(*it);  // freed during a capture
    for (auto& event : it->events) {
      if (wait) event->synchronize();
      done = done && (wait || event->done());
    }
    if (!done) {
      ++it;
      continue;
    }
    put(it->block);
    it = waiting_.erase(it);
  }
}

void DeviceAllocator::return_segments() {
  // Work of this stream may still use memory that the host has freed (settle() waits for the other streams). Do not
  // wait for the whole device, which would break the capture of another thread.
  gpu_.stream().synchronize();
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    DeviceBlock* block = it->second.get();
    if (!block->free || block->before || block->after) {
      ++it;
      continue;
    }
    (block->small ? small_ : large_).erase(block);
    check(driver().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(block->address)), "freeing memory of ", gpu_.device());
    reserved_ -= block->bytes;
    stats_.cached -= block->bytes;
    it = blocks_.erase(it);
  }
}

void DeviceAllocator::out_of_memory(int64_t bytes, const std::string& why) {
  std::string message =
      str_cat("out of memory on ", gpu_.device(), ": asked for ", bytes_text(bytes), " (", bytes, " bytes); ", why);
  size_t free = 0, total = 0;
  gpu_.make_current();
  if (driver().cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS)
    message += str_cat("; the device has ", bytes_text(free), " free of ", bytes_text(total));
  message += str_cat("; held here: ", bytes_text(stats_.live), " live, ", bytes_text(stats_.cached), " cached");
  std::vector<const DeviceBlock*> live;
  for (auto& [address, block] : blocks_)
    if (!block->free && block->counted > 0) live.push_back(block.get());
  std::stable_sort(live.begin(), live.end(),
                   [](const DeviceBlock* a, const DeviceBlock* b) { return a->counted > b->counted; });
  if (live.size() > 5) live.resize(5);
  for (size_t i = 0; i < live.size(); ++i)
    message += str_cat(i == 0 ? "; largest live tensors: " : ", ",
                       live[i]->name.empty() ? "one without a name" : live[i]->name, " ", bytes_text(live[i]->counted));
  weft::internal::fail(Code::kResourceExhausted, message);
}

MemoryStats DeviceAllocator::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}
void DeviceAllocator::reset_peak() {
  MutexLock lock(mutex_);
  stats_.peak = stats_.live;
}
int64_t DeviceAllocator::reset_step_peak() {
  MutexLock lock(mutex_);
  return stats_.step_peak = stats_.live;
}
void DeviceAllocator::set_limit(int64_t bytes) {
  MutexLock lock(mutex_);
  limit_ = bytes;
}
void DeviceAllocator::empty_cache() {
  WEFT_CHECK_AS(kFailedPrecondition, !thread_is_capturing(), "cuda: empty_cache while a graph is captured");
  MutexLock lock(mutex_);
  gpu_.make_current();
  settle(true);
  return_segments();
}
void DeviceAllocator::set_poison(bool on) {
  MutexLock lock(mutex_);
  poison_ = on;
}
int64_t DeviceAllocator::reserved() const {
  MutexLock lock(mutex_);
  return reserved_;
}

DeviceAllocator::DeviceBlock* DeviceAllocator::live_block(const void* p) const {
  auto it = blocks_.upper_bound(static_cast<char*>(const_cast<void*>(p)));
  if (it == blocks_.begin()) return nullptr;
  DeviceBlock* block = std::prev(it)->second.get();
  return block->free || block->counted == 0 || p >= block->address + block->bytes ? nullptr : block;
}

std::pair<const void*, int64_t> DeviceAllocator::holding(const void* p) const {
  MutexLock lock(mutex_);
  const DeviceBlock* block = live_block(p);
  return block ? std::pair<const void*, int64_t>{block->address, block->asked}
               : std::pair<const void*, int64_t>{nullptr, 0};
}

void DeviceAllocator::set_name(const void* p, std::string name) {
  MutexLock lock(mutex_);
  if (DeviceBlock* block = live_block(p)) block->name = std::move(name);
}

void DeviceAllocator::used_by(const void* p, Stream& stream) {
  if (&stream == &gpu_.stream()) return;
  MutexLock lock(mutex_);
  DeviceBlock* block = live_block(p);
  WEFT_BUG_IF(!block, "not live memory of ", gpu_.device());
  if (std::find(block->used_by.begin(), block->used_by.end(), &stream) == block->used_by.end())
    block->used_by.push_back(&stream);
}

}  // namespace weft::cuda
