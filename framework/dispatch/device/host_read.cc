#include "framework/dispatch/device/host_read.h"

#include "framework/base/tracer.h"
#include "framework/dispatch/device/target.h"
#include "framework/dispatch/state/state.h"

namespace weft {

HostRead::HostRead() = default;
HostRead::HostRead(HostRead&&) noexcept = default;
HostRead& HostRead::operator=(HostRead&&) noexcept = default;

HostRead::HostRead(const std::vector<Tensor>& values, std::source_location loc) {
  internal::LineScope here(loc);
  NoGrad guard;
  values_.reserve(values.size());
  struct DeviceReads {
    Device device;
    std::vector<Tensor> alive;
    std::vector<StridedView> from, to;
  };
  std::vector<DeviceReads> devices;
  for (const Tensor& t : values) {
    WEFT_CHECK_AS(kFailedPrecondition, t.defined(), "HostRead: value ", values_.size(),
                  " is an undefined tensor; need one with a value");
    require_concrete(t, "HostRead", loc);
    const Device device = t.device();
    if (device.type == DeviceType::kCpu) {
      values_.push_back(t.detach());
      continue;
    }
    values_.push_back(Tensor::empty({t.dtype(), Device::cpu(), t.shape()}));
    auto of = devices.begin();
    while (of != devices.end() && !(of->device == device)) ++of;
    if (of == devices.end()) of = devices.insert(of, DeviceReads{device, {}, {}, {}});
    of->alive.push_back(t.contiguous());
    of->from.push_back(of->alive.back().view_for_kernel());
    of->to.push_back(values_.back().view_for_kernel());
  }
  for (const DeviceReads& of : devices) {
    Target& target = target_of(of.device.type, "HostRead");
    if (std::unique_ptr<QueuedRead> queued = target.queue_read(of.device, of.from, of.to)) {
      queued_.push_back(std::move(queued));
      continue;
    }
    for (size_t i = 0; i < of.to.size(); ++i) target.copy(of.from[i], of.device, of.to[i], Device::cpu());
  }
}

HostRead::~HostRead() = default;

bool HostRead::ready() const {
  for (const auto& q : queued_)
    if (!q->done()) return false;
  return true;
}

const std::vector<Tensor>& HostRead::wait() {
  while (!queued_.empty()) {
    const std::unique_ptr<QueuedRead> q = std::move(queued_.back());
    queued_.pop_back();
    const internal::TraceScope trace(TraceEvent::kHost, "wait for the device");
    q->wait();
  }
  return values_;
}

}  // namespace weft
