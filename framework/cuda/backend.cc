#include "framework/cuda/backend.h"

#include <atomic>

#include "framework/base/error.h"
#include "framework/cuda/copy.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/queued_read.h"
#include "framework/dispatch/generator.h"

namespace weft::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  void run_op(const KernelCall& call, Device device, SourceLine line) override {
    OpRunner* runner = runner_.load(std::memory_order_acquire);
    WEFT_CHECK_AS(kUnimplemented, runner, call.op.name, ": no kernels for ", device, " in this program");
    runner->run_op(call, device, line);
  }

  void copy(const StridedView& from, Device from_device, const StridedView& to, Device to_device) override {
    const bool from_cuda = from_device.type == DeviceType::kCuda, to_cuda = to_device.type == DeviceType::kCuda;
    if (!from_cuda) {
      copy_to_device(from, to, Gpu::of(to_device).stream());
    } else if (!to_cuda) {
      copy_to_host(from, to, Gpu::of(from_device).stream());
      if (OpRunner* runner = runner_.load(std::memory_order_acquire)) runner->look(from_device);
    } else if (from_device == to_device) {
      copy_on_device(from, to, Gpu::of(to_device).stream());
    } else {
      copy_between_devices(from, Gpu::of(from_device), to, Gpu::of(to_device));
    }
  }

  Allocator& allocator(Device device) override {
    Gpu& gpu = Gpu::of(device);
    // After the GPU's own, so before it: what goes last was registered first.
    [[maybe_unused]] static const bool registered =
        (internal::at_driver_change([] { weft::internal::forget_generators(DeviceType::kCuda); }), true);
    return gpu.allocator();
  }

  std::atomic<OpRunner*> runner_{nullptr};
};

CudaBackend& the_backend() {
  static auto* the = new CudaBackend;
  return *the;
}

std::unique_ptr<weft::internal::QueuedRead> queue_read(Device device, std::span<const StridedView> from,
                                                       std::span<const StridedView> to) {
  OpRunner* runner = the_backend().runner_.load(std::memory_order_acquire);
  return std::make_unique<QueuedRead>(Gpu::of(device), from, to, runner ? runner->queue_look(device) : nullptr);
}

}  // namespace

OpRunner* install_backend(OpRunner* runner) {
  CudaBackend& the = the_backend();
  OpRunner* previous = the.runner_.exchange(runner, std::memory_order_acq_rel);
  set_backend(DeviceType::kCuda, &the);
  weft::internal::set_queue_read(DeviceType::kCuda, queue_read);
  return previous;
}

}  // namespace weft::cuda
