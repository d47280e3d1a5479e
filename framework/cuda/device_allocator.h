// The caching allocator of one GPU. Work of the same stream reuses freed memory at once, because it comes later in the
// stream; memory that other streams used waits for them. The driver stops the device to allocate, so it is asked for
// large segments only. Free segments are returned to it before an allocation fails with "out of memory".
#pragma once
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/cuda/stream.h"
#include "framework/tensor/storage.h"

namespace weft::cuda {

/// Blocks are 512-byte aligned. Live bytes are counted as on the CPU (rounded up to 64): plans agree with both.
class DeviceAllocator final : public Allocator {
 public:
  explicit DeviceAllocator(Gpu& gpu);
  ~DeviceAllocator() override;

  /// Memory for work of the GPU's own stream. Throws ResourceExhausted with the bytes asked for, free and held;
  /// FailedPrecondition if this needs the driver while the stream is capturing.
  void* allocate(int64_t bytes) override;
  void deallocate(void* p, int64_t bytes) override;
  MemoryStats stats() const override;
  void reset_peak() override;
  int64_t reset_step_peak() override;
  /// Waits for the device, then returns every segment that is completely free. Throws FailedPrecondition during a
  /// capture.
  void empty_cache() override;
  void set_limit(int64_t bytes) override;

  /// Marks the block that holds `p` as used by another stream: once freed, it is reused only when that stream's work is
  /// done.
  void used_by(const void* p, Stream& stream);
  /// The live block that holds `p`: its address and the requested bytes; {null, 0} if there is none.
  std::pair<const void*, int64_t> holding(const void* p) const;
  /// Names the block that holds `p` while it is live ("wte.weight", "arena of train_step"): the "out of memory" message
  /// lists the largest blocks. Ignores memory of other allocators.
  void set_name(const void* p, std::string name);
  /// Fills freed blocks with 0xFF bytes, in stream order, so that a use after free shows. For tests.
  void set_poison(bool on);
  /// Bytes held from the driver, free or live.
  int64_t reserved() const;

 private:
  struct DeviceBlock {
    char* address = nullptr;
    int64_t bytes = 0;
    DeviceBlock *before = nullptr, *after = nullptr;  // neighbours in the segment
    bool free = false, small = false;
    int64_t asked = 0;             // bytes, while live
    int64_t counted = 0;           // share of stats.live; 0 unless live
    std::vector<Stream*> used_by;  // other streams
    std::string name;              // while live
  };
  struct Smaller {
    bool operator()(const DeviceBlock* a, const DeviceBlock* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
    }
  };
  struct FreedBlock {  // freed, but other streams still use it
    DeviceBlock* block;
    std::vector<Stream*> streams;  // streams whose position is still to be recorded
    std::vector<std::unique_ptr<Event>> events;
  };
  using FreeSet = std::set<DeviceBlock*, Smaller>;

  DeviceBlock* take(FreeSet& set, int64_t bytes) WEFT_REQUIRES(mutex_);
  void put(DeviceBlock* block) WEFT_REQUIRES(mutex_);
  DeviceBlock* grow(int64_t bytes, bool small) WEFT_REQUIRES(mutex_);
  void mark(FreedBlock& w) WEFT_REQUIRES(mutex_);
  void settle(bool wait) WEFT_REQUIRES(mutex_);
  void return_segments() WEFT_REQUIRES(mutex_);
  DeviceBlock* live_block(const void* p) const WEFT_REQUIRES(mutex_);  // null if there is none
  [[noreturn]] void out_of_memory(int64_t bytes, const std::string& why) WEFT_REQUIRES(mutex_);

  Gpu& gpu_;
  mutable Mutex mutex_;
  MemoryStats stats_ WEFT_GUARDED_BY(mutex_);
  int64_t limit_ WEFT_GUARDED_BY(mutex_) = 0;
  int64_t reserved_ WEFT_GUARDED_BY(mutex_) = 0;
  bool poison_ WEFT_GUARDED_BY(mutex_) = false;
  FreeSet small_ WEFT_GUARDED_BY(mutex_), large_ WEFT_GUARDED_BY(mutex_);
  std::map<char*, std::unique_ptr<DeviceBlock>> blocks_ WEFT_GUARDED_BY(mutex_);  // all, by address
  std::list<FreedBlock> waiting_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::cuda
