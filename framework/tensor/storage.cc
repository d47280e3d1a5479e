#include "framework/tensor/storage.h"

#include <malloc.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <map>
#include <new>
#include <ostream>

#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/origin.h"
#include "framework/base/parse_number.h"

namespace weft {

std::string Device::to_string() const {
  switch (type) {
    case DeviceType::kCpu:
      return index == 0 ? "cpu" : str_cat("cpu:", index);
    case DeviceType::kCuda:
      return str_cat("cuda:", index);
    case DeviceType::kMeta:
      return "meta";
    case DeviceType::kOther:
      return str_cat("other:", index);
  }
  return "?";
}

std::optional<Device> Device::parse(std::string_view name) {
  const size_t colon = name.find(':');
  const std::string_view type = name.substr(0, colon);
  Device d;
  if (type == "cuda")
    d.type = DeviceType::kCuda;
  else if (name == "meta")
    d.type = DeviceType::kMeta;
  else if (type != "cpu")
    return {};
  if (colon == name.npos) return d;
  const auto index = parse_number<decltype(d.index)>(name.substr(colon + 1), 0);
  if (!index) return {};
  d.index = *index;
  return d;
}

Device Device::named(std::string_view name, Loc loc) {
  internal::LineScope line(loc);
  const std::optional<Device> d = parse(name);
  WEFT_CHECK(d, "Device: got '", name, "'; need cpu, cuda, cuda:N or meta");
  return *d;
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << device.to_string(); }

std::string MemoryStats::to_string() const {
  return str_cat("live ", live, " B, peak ", peak, " B, cached ", cached, " B, ", allocations, " allocations (",
                 system_allocations, " from the system)");
}

namespace {

// Size classes: multiples of 64 B up to 1 KiB, then eight steps per power of two, so at most 12.5 % is slack.
constexpr int kSmallClasses = 16;
constexpr int kClasses = kSmallClasses + 8 * 40;
constexpr int64_t kMostBytes = int64_t{1} << 50;  // size of the last class

struct SizeClass {
  int index;
  int64_t bytes;
};

SizeClass size_class(int64_t bytes) {
  if (bytes <= 1024) {
    int i = bytes <= 64 ? 0 : static_cast<int>((bytes + 63) / 64 - 1);
    return {i, (i + 1) * 64};
  }
  int log = 63 - std::countl_zero(static_cast<uint64_t>(bytes - 1));  // 2^log <= bytes-1
  int64_t base = int64_t{1} << log, step = base / 8;
  int64_t k = (bytes - base + step - 1) / step;  // 1..8
  return {kSmallClasses + (log - 10) * 8 + static_cast<int>(k) - 1, base + k * step};
}

int64_t class_bytes(int index) {
  if (index < kSmallClasses) return (index + 1) * 64;
  const int64_t base = int64_t{1} << (10 + (index - kSmallClasses) / 8);
  return base + ((index - kSmallClasses) % 8 + 1) * (base / 8);
}

// Each block of kMapped bytes or more is a separate mapping. Blocks of kHuge bytes or more use pages of 2 MiB.
constexpr int64_t kMapped = int64_t{1} << 20, kHuge = int64_t{4} << 20;
constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
int64_t mapped_bytes(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

int64_t accounted(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

class CpuAllocator final : public Allocator {
 public:
  explicit CpuAllocator(Device device) : device_(device) {}

  void* allocate(int64_t bytes) override {
    if (bytes > kMostBytes) {
      MutexLock lock(mutex_);
      out_of_memory(bytes, "a block has at most 2^50 bytes");
    }
    SizeClass c = size_class(bytes);
    int64_t counted = accounted(bytes);
    {
      MutexLock lock(mutex_);
      if (limit_ > 0 && stats_.live + counted > limit_) [[unlikely]]
        out_of_memory(bytes, "the limit set for this device");
      stats_.live += counted;
      if (stats_.live > stats_.peak) stats_.peak = stats_.live;
      if (stats_.live > stats_.step_peak) stats_.step_peak = stats_.live;
      ++stats_.allocations;
      if (FreeBlock* b = free_[c.index]) {
        free_[c.index] = b->next;
        stats_.cached -= c.bytes;
        return b;
      }
      ++stats_.system_allocations;
    }
    void* p = from_system(c.bytes);
    if (!p) {
      empty_cache();
      p = from_system(c.bytes);
    }
    if (!p) {
      MutexLock lock(mutex_);
      stats_.live -= counted;
      out_of_memory(bytes, "the operating system has no more");
    }
    return p;
  }

  void deallocate(void* p, int64_t bytes) override {
    SizeClass c = size_class(bytes);
    MutexLock lock(mutex_);
    stats_.live -= accounted(bytes);
    stats_.cached += c.bytes;
    auto* b = static_cast<FreeBlock*>(p);
    b->next = free_[c.index];
    free_[c.index] = b;
  }

  MemoryStats stats() const override {
    MutexLock lock(mutex_);
    return stats_;
  }
  void reset_peak() override {
    MutexLock lock(mutex_);
    stats_.peak = stats_.live;
  }
  int64_t reset_step_peak() override {
    MutexLock lock(mutex_);
    return stats_.step_peak = stats_.live;
  }
  void set_limit(int64_t bytes) override {
    MutexLock lock(mutex_);
    limit_ = bytes;
  }
  void empty_cache() override {
    MutexLock lock(mutex_);
    for (FreeBlock*& head : free_) {
      while (head) {
        FreeBlock* b = head;
        head = b->next;
        to_system(b, class_bytes(static_cast<int>(&head - free_.data())));
      }
    }
    stats_.cached = 0;
    malloc_trim(0);  // otherwise the C library keeps small blocks
  }

 private:
  struct FreeBlock {
    FreeBlock* next;
  };

  // Large blocks are mapped one by one: the memory of each returns to the system whole, and pages that were never
  // written use no memory. Null if there is no memory.
  static void* from_system(int64_t bytes) {
    if (bytes < kMapped) return std::aligned_alloc(64, static_cast<size_t>(bytes));
    const int64_t more = bytes >= kHuge ? static_cast<int64_t>(kHugePage) : 0;  // for the alignment
    void* const p =
        mmap(nullptr, mapped_bytes(bytes) + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    if (!more) return p;
    auto* const begin = static_cast<char*>(p);
    auto* const block = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(p) + kHugePage - 1) & ~(kHugePage - 1));
    if (block > begin) munmap(begin, block - begin);
    if (const int64_t rest = begin + more - block; rest > 0) munmap(block + mapped_bytes(bytes), rest);
    // Pages of 2 MiB, but for the end: fewer faults and TLB misses.
    madvise(block, mapped_bytes(bytes), MADV_HUGEPAGE);
    return block;
  }
  static void to_system(void* p, int64_t bytes) {
    if (bytes < kMapped) return std::free(p);
    munmap(p, mapped_bytes(bytes));
  }

  [[noreturn]] void out_of_memory(int64_t bytes, const char* why) WEFT_REQUIRES(mutex_) {
    internal::fail(Code::kResourceExhausted,
                   str_cat("out of memory on ", device_, ": asked for ", bytes, " bytes; live ", stats_.live,
                           ", cached ", stats_.cached, limit_ > 0 ? str_cat(", limit ", limit_) : "", "; ", why));
  }

  const Device device_;
  mutable Mutex mutex_;
  MemoryStats stats_ WEFT_GUARDED_BY(mutex_);
  int64_t limit_ WEFT_GUARDED_BY(mutex_) = 0;
  std::array<FreeBlock*, kClasses> free_ WEFT_GUARDED_BY(mutex_) = {};
};

}  // namespace

static std::atomic<DeviceMemory*> memories[kDeviceTypes];

DeviceMemory* device_memory(DeviceType type) {
  return memories[static_cast<int>(type)].load(std::memory_order_acquire);
}
void set_device_memory(DeviceType type, DeviceMemory* memory) {
  memories[static_cast<int>(type)].store(memory, std::memory_order_release);
}

Allocator& Allocator::of(Device device) {
  if (device.type != DeviceType::kCpu) {
    DeviceMemory* memory = device_memory(device.type);
    WEFT_CHECK(memory, "allocate: device ", device, " is not available; need cpu");
    return memory->allocator(device);
  }
  if (device.index == 0) {
    static auto* first = new CpuAllocator(Device::cpu());
    return *first;
  }
  static Mutex mutex;
  static auto* all = new std::map<int, CpuAllocator*>;
  MutexLock lock(mutex);
  CpuAllocator*& a = (*all)[device.index];
  if (!a) a = new CpuAllocator(device);
  return *a;
}

MemoryStats memory_stats(Device device) { return Allocator::of(device).stats(); }

Ref<Storage> Storage::allocate(int64_t bytes, Device device) {
  WEFT_BUG_IF(bytes < 0, "allocate: ", bytes, " bytes");
  Ref<Storage> b(new Storage);
  b->allocator_ = &Allocator::of(device);
  b->device_ = device;
  b->bytes_ = bytes;
  if (bytes > 0) b->data_ = b->allocator_->allocate(bytes);
  return b;
}

Ref<Storage> Storage::wrap(void* data, int64_t bytes, Device device, std::function<void(void*)> deleter) {
  Ref<Storage> b(new Storage);
  b->data_ = data;
  b->bytes_ = bytes;
  b->device_ = device;
  if (deleter) b->deleter_ = new std::function<void(void*)>(std::move(deleter));
  return b;
}

Storage::~Storage() {
  if (allocator_) {
    if (data_) allocator_->deallocate(data_, bytes_);
  } else if (deleter_) {
    (*deleter_)(data_);
    delete deleter_;
  }
}

}  // namespace weft
