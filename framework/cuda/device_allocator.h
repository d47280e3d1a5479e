// The caching allocator of one GPU. Freed memory is reused at once by work of the same stream, which comes later in it
// by construction; memory that other streams used waits for them. The driver, which stops the device to allocate, is
// asked for large segments only, and given back what is free before "out of memory" is said.
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

/// Blocks are 512-byte aligned. Live bytes count as on the CPU (rounded up to 64), so that plans agree with both.
class DeviceAllocator final : public Allocator {
 public:
  explicit DeviceAllocator(Gpu& gpu);
  ~DeviceAllocator() override;

  /// Memory for work of the GPU's own stream. Throws ResourceExhausted saying what was asked, what is free and what is
  /// held; FailedPrecondition if the driver would have to be asked while the stream is capturing.
  void* allocate(int64_t bytes) override;
  void deallocate(void* p, int64_t bytes) override;
  MemoryStats stats() const override;
  void reset_peak() override;
  void reset_step_peak() override;
  /// Waits for the device, then returns every segment that is wholly free. Throws FailedPrecondition under a capture.
  void empty_cache() override;
  void set_limit(int64_t bytes) override;

  /// Work of another stream uses the block that holds `p`: once freed, it is reused only when that work is done.
  void used_by(const void* p, Stream& stream);
  /// The live block that holds `p`: its address and the bytes that were asked for; {null, 0} if there is none.
  std::pair<const void*, int64_t> holding(const void* p) const;
  /// Names the block that holds `p` for as long as it is live ("wte.weight", "arena of train_step"): the message of
  /// "out of memory" lists the largest. Memory that is not of this allocator is passed over.
  void set_name(const void* p, std::string name);
  /// Fills freed blocks with 0xFF bytes, in stream order, so that use after free is seen. For tests.
  void set_poison(bool on);
  /// Bytes held from the driver, free or live.
  int64_t reserved() const;

 private:
  struct Block {
    char* address = nullptr;
    int64_t bytes = 0;
    Block *before = nullptr, *after = nullptr;  // neighbours in the segment
    bool free = false, small = false;
    int64_t asked = 0;             // bytes, while live
    int64_t counted = 0;           // of stats.live; 0 unless live
    std::vector<Stream*> used_by;  // other streams
    std::string name;              // while live
  };
  struct Smaller {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
    }
  };
  struct Waiting {  // freed, but other streams are not done with it
    Block* block;
    std::vector<Stream*> streams;  // whose place is still to be recorded
    std::vector<std::unique_ptr<Event>> events;
  };
  using FreeSet = std::set<Block*, Smaller>;

  Block* take(FreeSet& set, int64_t bytes) WEFT_REQUIRES(mutex_);
  void put(Block* block) WEFT_REQUIRES(mutex_);
  Block* grow(int64_t bytes, bool small) WEFT_REQUIRES(mutex_);
  void mark(Waiting& w) WEFT_REQUIRES(mutex_);
  void settle(bool wait) WEFT_REQUIRES(mutex_);
  void return_segments() WEFT_REQUIRES(mutex_);
  Block* live_block(const void* p) const WEFT_REQUIRES(mutex_);  // null if there is none
  [[noreturn]] void out_of_memory(int64_t bytes, const std::string& why) WEFT_REQUIRES(mutex_);

  Gpu& gpu_;
  mutable Mutex mutex_;
  MemoryStats stats_ WEFT_GUARDED_BY(mutex_);
  int64_t limit_ WEFT_GUARDED_BY(mutex_) = 0;
  int64_t reserved_ WEFT_GUARDED_BY(mutex_) = 0;
  bool poison_ WEFT_GUARDED_BY(mutex_) = false;
  FreeSet small_ WEFT_GUARDED_BY(mutex_), large_ WEFT_GUARDED_BY(mutex_);
  std::map<char*, std::unique_ptr<Block>> blocks_ WEFT_GUARDED_BY(mutex_);  // all, by address
  std::list<Waiting> waiting_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::cuda
