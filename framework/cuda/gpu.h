// One GPU of this process: its properties, context, stream and memory. Made at first use, kept until the driver is
// replaced. All eager work runs on its one stream, in program order.
#pragma once
#include <memory>
#include <string>

#include "framework/base/mutex.h"
#include "framework/cuda/libraries/driver_api.h"
#include "framework/tensor/device.h"

namespace weft::cuda {

class Stream;
class DeviceAllocator;
class PinnedPool;

/// Properties of a GPU as the driver reports them. Sizes in bytes.
struct GpuProperties {
  std::string name;     // "NVIDIA H100 80GB HBM3"
  std::string pci_bus;  // "0000:1b:00.0"
  int sm = 0;           // compute capability times 10: 90
  int multiprocessors = 0;
  int64_t memory = 0;
  int warp = 32;
  int64_t grid_x = 0, grid_y = 0, grid_z = 0;  // maximum blocks per dimension
  int shared_per_block = 0;                    // default limit
  int shared_per_block_optin = 0;              // maximum, if requested
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;

  /// Peak rate of device memory in bytes per second, from the clocks; 0 if the driver does not report them.
  double memory_rate() const { return 2.0 * memory_clock_khz * 1e3 * memory_bus_bits / 8; }
  /// `sm`, or 80 for 90 under WEFT_CUDA=sm80: selects the instructions of kernels with tensor cores.
  int kernel_sm() const;
  /// "NVIDIA H100 80GB HBM3, compute capability 9.0, 132 multiprocessors, 79.1 GiB".
  std::string to_string() const;
};

/// Properties of the GPU `index`, without making a context. Throws if there is no such GPU.
GpuProperties gpu_properties(int index);

class Gpu {
 public:
  /// The GPU `index`. Throws Unavailable if there is no CUDA, and NotFound, with the number of GPUs, if there is no
  /// such GPU.
  static Gpu& get(int index);
  static Gpu& of(Device device) { return get(device.index); }
  ~Gpu();
  Gpu(const Gpu&) = delete;

  int index() const { return index_; }
  Device device() const { return Device::cuda(index_); }
  const GpuProperties& properties() const { return properties_; }
  CUcontext context() const { return context_; }
  /// Makes this GPU's context current in the calling thread. Every wrapper here does so itself.
  void make_current() const;
  /// Same as make_current(), for destructors: the driver frees nothing for a thread without a context. Ignores errors.
  void make_current_if_possible() const noexcept;
  /// True under WEFT_SYNC=1, as read when the GPU was first used: the host waits for every launch.
  bool synchronous() const { return synchronous_; }

  Stream& stream() { return *stream_; }
  DeviceAllocator& allocator() { return *allocator_; }
  /// Pinned host memory for copies.
  PinnedPool& pinned() { return *pinned_; }
  /// Waits for all work of all streams of this GPU. Waits first for a capture of another thread to end, because the
  /// driver would break it. Throws FailedPrecondition if this thread is capturing.
  void synchronize();
  /// Locked while a stream of this GPU captures.
  Mutex& captures() { return captures_; }

 private:
  explicit Gpu(int index);
  int index_ = 0;
  bool synchronous_ = false;
  GpuProperties properties_;
  CUcontext context_ = nullptr;
  Mutex captures_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<PinnedPool> pinned_;
  std::unique_ptr<DeviceAllocator> allocator_;
};

/// "512 bytes", "2.0 KiB", "79.1 GiB": for messages.
std::string bytes_text(int64_t bytes);

}  // namespace weft::cuda
