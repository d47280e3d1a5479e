// Pinned host memory, which a GPU copies to and from by itself while the host goes on. Blocks are kept and reused:
// pinning is slow. A block given back while a copy still uses it waits for that copy.
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
  /// Gives a block back; it is reused once what `stream` has queued so far is done.
  void give_back(void* p, Stream& stream);
  /// Gives back a block that nothing uses any more.
  void give_back(void* p);
  /// Unpins what is not in use.
  void empty_cache();
  /// Bytes pinned, in use or not.
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
  std::map<int64_t, std::vector<void*>> free_ WEFT_GUARDED_BY(mutex_);  // by size
  std::deque<Waiting> waiting_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Event>> events_ WEFT_GUARDED_BY(mutex_);  // to be used again
};

}  // namespace weft::cuda
