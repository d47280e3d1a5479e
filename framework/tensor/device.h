// The device of a tensor. CPU devices are indexed by rank; meta tensors have a type but no memory.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>

namespace weft {

/// kOther is the device of a target that is not part of Weft (framework/dispatch/device/target.h).
enum class DeviceType : uint8_t { kCpu, kCuda, kMeta, kOther };
inline constexpr int kDeviceTypes = 4;

struct Device {
  DeviceType type = DeviceType::kCpu;
  int16_t index = 0;
  static Device cpu(int index = 0) { return {DeviceType::kCpu, static_cast<int16_t>(index)}; }
  static Device cuda(int index = 0) { return {DeviceType::kCuda, static_cast<int16_t>(index)}; }
  /// Tensors on meta carry shape and dtype only: a model can be planned without its memory.
  static Device meta() { return {DeviceType::kMeta, 0}; }
  static Device other(int index = 0) { return {DeviceType::kOther, static_cast<int16_t>(index)}; }
  /// True if values are in the memory of a target other than the CPU's.
  bool is_accelerator() const { return type == DeviceType::kCuda || type == DeviceType::kOther; }
  friend bool operator==(Device, Device) = default;
  /// "cpu", "cpu:1", "cuda:0", "meta", "other:0".
  std::string to_string() const;
};
std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace weft
