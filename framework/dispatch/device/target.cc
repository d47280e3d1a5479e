#include "framework/dispatch/device/target.h"

#include <atomic>

#include "framework/base/error.h"

namespace weft {

static std::atomic<Target*> targets[kDeviceTypes];

Target* find_target(DeviceType type) {
  if (type == DeviceType::kMeta) type = DeviceType::kCpu;
  return targets[static_cast<int>(type)].load(std::memory_order_acquire);
}

Target& target_of(DeviceType type, const char* who) {
  Target* t = find_target(type);
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
