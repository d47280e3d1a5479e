#include "framework/cuda/gpu.h"

#include <atomic>
#include <cstdio>
#include <map>

#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/switches.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/graph_replay.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/cuda/stream.h"
#include "framework/cuda/transfer/pinned_pool.h"

namespace weft::cuda {
namespace {

struct Gpus {
  Mutex mutex;
  std::map<int, Gpu*> all WEFT_GUARDED_BY(mutex);
};
Gpus& gpus() {
  static auto* g = new Gpus;
  return *g;
}

// Counts replacements of the driver: a context cached by a thread is invalid after one.
std::atomic<uint64_t> epoch{1};
// The driver keeps a current context for each thread; these two cache it.
thread_local uint64_t current_epoch = 0;
thread_local int current_index = -1;

void forget_gpus() {
  std::map<int, Gpu*> all;
  {
    MutexLock lock(gpus().mutex);
    all.swap(gpus().all);
  }
  for (auto& [index, gpu] : all) delete gpu;
  epoch.fetch_add(1, std::memory_order_acq_rel);
}

void check_index(int index) {
  driver();  // throws if there is no CUDA
  const int count = availability().devices;
  WEFT_CHECK_AS(kNotFound, index >= 0 && index < count, "cuda:", index, ": this machine has ", count,
                count == 1 ? " GPU; need cuda:0" : " GPUs; need an index below that");
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  if (bytes < 1024) return str_cat(bytes, bytes == 1 ? " byte" : " bytes");
  const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  double v = static_cast<double>(bytes) / 1024;
  int u = 0;
  for (; v >= 1024 && u < 3; ++u) v /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", v, units[u]);
  return text;
}

int GpuProperties::kernel_sm() const { return sm == 90 && switch_has("WEFT_CUDA", "sm80") ? 80 : sm; }

std::string GpuProperties::to_string() const {
  return str_cat(name, ", compute capability ", sm / 10, ".", sm % 10, ", ", multiprocessors, " multiprocessors, ",
                 bytes_text(memory));
}

GpuProperties gpu_properties(int index) {
  check_index(index);
  const DriverApi& api = driver();
  CUdevice d = 0;
  check(api.cuDeviceGet(&d, index), "opening GPU ", index);
  GpuProperties p;
  char text[256] = {};
  check(api.cuDeviceGetName(text, sizeof text, d), "reading the name of GPU ", index);
  p.name = text;
  check(api.cuDeviceGetPCIBusId(text, sizeof text, d), "reading the bus of GPU ", index);
  p.pci_bus = text;
  size_t memory = 0;
  check(api.cuDeviceTotalMem_v2(&memory, d), "reading the memory of GPU ", index);
  p.memory = static_cast<int64_t>(memory);
  auto get = [&](CUdevice_attribute a) {
    int value = 0;
    check(api.cuDeviceGetAttribute(&value, a, d), "reading attribute ", static_cast<int>(a), " of GPU ", index);
    return value;
  };
  p.sm = 10 * get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) + get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  p.multiprocessors = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  p.warp = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  p.grid_x = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  p.grid_y = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  p.grid_z = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  p.shared_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  p.shared_per_block_optin = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  // Clocks are used for estimates only; a driver may not report them.
  auto clock = [&](CUdevice_attribute a) {
    int value = 0;
    return api.cuDeviceGetAttribute(&value, a, d) == CUDA_SUCCESS ? value : 0;
  };
  p.clock_khz = clock(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  p.memory_clock_khz = clock(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  p.memory_bus_bits = clock(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  return p;
}

Gpu& Gpu::get(int index) {
  MutexLock lock(gpus().mutex);
  auto it = gpus().all.find(index);
  if (it != gpus().all.end()) return *it->second;
  check_index(index);
  [[maybe_unused]] static const bool registered = (internal::at_driver_change(forget_gpus), true);
  std::unique_ptr<Gpu> gpu(new Gpu(index));
  gpu->stream_ = std::make_unique<Stream>(*gpu);
  gpu->pinned_ = std::make_unique<PinnedPool>(*gpu);
  gpu->allocator_ = std::make_unique<DeviceAllocator>(*gpu);
  return *(gpus().all[index] = gpu.release());
}

Gpu::Gpu(int index) : index_(index), synchronous_(switch_on("WEFT_SYNC")), properties_(gpu_properties(index)) {
  CUdevice d = 0;
  check(driver().cuDeviceGet(&d, index), "opening GPU ", index);
  check(driver().cuDevicePrimaryCtxRetain(&context_, d), "making a context on GPU ", index);
}

Gpu::~Gpu() {
  ignore(driver().cuCtxSetCurrent(context_));
  ignore(driver().cuCtxSynchronize());
  allocator_.reset();
  pinned_.reset();
  stream_.reset();
  ignore(driver().cuCtxSetCurrent(nullptr));
  ignore(driver().cuDevicePrimaryCtxRelease_v2(index_));
}

void Gpu::make_current() const {
  const uint64_t now = epoch.load(std::memory_order_acquire);
  if (current_index == index_ && current_epoch == now) return;
  check(driver().cuCtxSetCurrent(context_), "using GPU ", index_);
  current_index = index_;
  current_epoch = now;
}

void Gpu::make_current_if_possible() const noexcept {
  const uint64_t now = epoch.load(std::memory_order_acquire);
  if (current_index == index_ && current_epoch == now) return;
  if (driver().cuCtxSetCurrent(context_) != CUDA_SUCCESS) return;
  current_index = index_;
  current_epoch = now;
}

void Gpu::synchronize() {
  WEFT_CHECK_AS(kFailedPrecondition, !thread_is_capturing(), "cuda: waiting for ", device(),
                " while a graph is captured; need to do so before or after");
  MutexLock lock(captures_);
  make_current();
  check(driver().cuCtxSynchronize(), "waiting for ", device());
}

}  // namespace weft::cuda
