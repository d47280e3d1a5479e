// Pinned host memory, which a GPU copies to and from without the host. Blocks are kept and reused, because pinning is
// slow. A block that is returned while a copy still uses it waits for that copy.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/cuda/stream.h"

namespace weft::cuda {

class PinnedPool {
 public:
  explicit PinnedPool(Gpu& gpu) : gpu_(gpu) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;

  /// At least `bytes` of pinned memory, 4096-byte aligned.
  void* take(int64_t bytes);
  /// Returns a block; it is reused once the work queued on `stream` so far is done.
  void give_back(void* p, Stream& stream);
  /// Returns a block that nothing uses any more.
  void give_back(void* p);
  /// Unpins the blocks that are not in use.
  void empty_cache();
  /// Pinned bytes, in use or not.
  int64_t reserved() const;

 private:
  struct Waiting {
    void* block;
    std::unique_ptr<Event> event;
  };
  void settle() WEFT_REQUIRES(mutex_);

  Gpu& gpu_;
  mutable Mutex mutex_;
  std::map<void*, int64_t> blocks_ WEFT_GUARDED_BY(mutex_);             // all, with their sizes
  std::map<int64_t, std::vector<void*>> free_ WEFT_GUARDED_BY(mutex_);  // key: size
  std::deque<Waiting> waiting_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Event>> events_ WEFT_GUARDED_BY(mutex_);  // for reuse
};

}  // namespace weft::cuda
