#include "framework/cuda/memory_target.h"

#include "framework/base/error.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/transfer/copy.h"
#include "framework/cuda/transfer/pinned_read.h"
#include "framework/dispatch/state/generator.h"

namespace weft::cuda {
namespace {

[[noreturn]] void no_kernels(const char* op) {
  weft::internal::fail(Code::kUnimplemented,
                       str_cat(op, ": no kernels for cuda in this program; need to link //:weft"));
}

}  // namespace

void MemoryTarget::copy(const StridedView& from, Device from_device, const StridedView& to, Device to_device) {
  const bool from_cuda = from_device.type == DeviceType::kCuda, to_cuda = to_device.type == DeviceType::kCuda;
  if (!from_cuda) {
    copy_to_device(from, to, Gpu::of(to_device).stream());
  } else if (!to_cuda) {
    copy_to_host(from, to, Gpu::of(from_device).stream());
    look(from_device);
  } else if (from_device == to_device) {
    copy_on_device(from, to, Gpu::of(to_device).stream());
  } else {
    copy_between_devices(from, Gpu::of(from_device), to, Gpu::of(to_device));
  }
}

Allocator& MemoryTarget::allocator(Device device) {
  Gpu& gpu = Gpu::of(device);
  // Registered after the GPU's own function, so it runs before that function: the order is reversed.
  [[maybe_unused]] static const bool registered =
      (internal::at_driver_change([] { weft::internal::forget_generators(DeviceType::kCuda); }), true);
  return gpu.allocator();
}

std::unique_ptr<QueuedRead> MemoryTarget::queue_read(Device device, std::span<const StridedView> from,
                                                     std::span<const StridedView> to) {
  return std::make_unique<PinnedRead>(Gpu::of(device), from, to, queue_look(device));
}

void MemoryTarget::set_name(Device device, const void* p, const std::string& name) {
  Gpu::of(device).allocator().set_name(p, name);
}

// Vector loads of 16 bytes are the widest; the allocator's blocks start at multiples of 256.
TargetLimits MemoryTarget::limits() const {
  // A library computes products, and reads its operands from memory.
  return {
      .synchronous = false, .buffer_alignment = 256, .address_alignment = 16, .row_alignment = 16, .prologues = false};
}

std::shared_ptr<weft::Operation> MemoryTarget::prepare(Device, const OpDef& op, const Attrs&,
                                                       std::span<const StridedView>, std::span<const StridedView>, int,
                                                       const PrepareOptions&) {
  no_kernels(op.name);
}
LoadReport MemoryTarget::compile(Device, std::span<const std::shared_ptr<weft::Operation>>, const LoadOptions&) {
  no_kernels("compile");
}
void MemoryTarget::run_now(const KernelCall& call, Device, SourceLine) { no_kernels(call.op.name); }
std::unique_ptr<Replay> MemoryTarget::replay(Device, std::span<const StepCall>, ReplayOptions) {
  no_kernels("compile");
}

MemoryTarget& memory_target() {
  static auto* t = new MemoryTarget;
  return *t;
}

}  // namespace weft::cuda
