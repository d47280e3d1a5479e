// Storage: refcounted bytes. Allocator: the caching allocator of one device, with statistics.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "framework/base/ref.h"
#include "framework/tensor/device.h"

namespace weft {

/// Counts of one device's allocator, in bytes (rounded up to 64 per block) unless said.
struct MemoryStats {
  int64_t live = 0;                // held by tensors, cells and arenas now
  int64_t peak = 0;                // high-water mark of live since the last reset_peak
  int64_t step_peak = 0;           // the same since the last reset_step_peak: the need of one replay of an executable
  int64_t cached = 0;              // freed blocks kept for reuse
  int64_t allocations = 0;         // number of blocks handed out so far
  int64_t system_allocations = 0;  // blocks taken from the operating system
  std::string to_string() const;
};

/// Caching allocator of one device. Blocks are 64-byte aligned; thread-safe. Out of memory throws ResourceExhausted.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* allocate(int64_t bytes) = 0;
  virtual void deallocate(void* p, int64_t bytes) = 0;
  virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
  /// Restarts step_peak at the bytes that are live now, and returns them.
  virtual int64_t reset_step_peak() = 0;
  /// Returns cached blocks to the operating system.
  virtual void empty_cache() = 0;
  /// Refuses to let live grow beyond this many bytes; 0 is no limit.
  virtual void set_limit(int64_t bytes) = 0;

  /// The allocator of a CPU device (one per index) or of the device's backend.
  static Allocator& of(Device device);
};

struct StridedView;

/// Memory of a device type other than the CPU and meta, provided by its backend.
struct DeviceMemory {
  virtual ~DeviceMemory() = default;
  /// Throws Unavailable, saying why, where there is no such device.
  virtual Allocator& allocator(Device device) = 0;
  /// Copies between this device type and the host, or between its devices. A copy to the host waits for the values.
  virtual void copy(const StridedView& from, Device from_device, const StridedView& to, Device to_device) = 0;
};
/// The memory of a device type, or null.
DeviceMemory* device_memory(DeviceType type);
void set_device_memory(DeviceType type, DeviceMemory* memory);

/// Statistics of a device's allocator.
MemoryStats memory_stats(Device device = Device::cpu());

/// Refcounted bytes on a device; memory comes from the device's allocator or from outside with a deleter.
class Storage final : public RefCounted {
 public:
  static Ref<Storage> allocate(int64_t bytes, Device device);
  static Ref<Storage> wrap(void* data, int64_t bytes, Device device, std::function<void(void*)> deleter);
  ~Storage() override;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  /// False if the memory came from outside.
  bool owned() const { return allocator_ != nullptr; }

 private:
  Storage() = default;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Device device_;
  Allocator* allocator_ = nullptr;
  std::function<void(void*)>* deleter_ = nullptr;
};

}  // namespace weft
