#include "framework/dispatch/device/target.h"

#include <atomic>

#include "framework/base/error.h"

namespace weft {

static std::atomic<Target*> targets[kDeviceTypes];

Target& target_of(DeviceType type, const char* who) {
  const DeviceType serving = type == DeviceType::kMeta ? DeviceType::kCpu : type;
  Target* t = targets[static_cast<int>(serving)].load(std::memory_order_acquire);
  WEFT_CHECK_AS(kUnavailable, t, who, ": this program has no kernels for device ", Device{type},
                "; need to link //:weft, which registers the targets");
  return *t;
}

Target* register_target(DeviceType type, Target* target) {
  Target* previous = targets[static_cast<int>(type)].exchange(target, std::memory_order_acq_rel);
  set_device_memory(type, target);
  return previous;
}

}  // namespace weft
