// The device of a tensor. CPU devices are indexed by rank; meta tensors have a type but no memory.
#pragma once
#include <cstdint>
#include <string>

namespace weft {

enum class DeviceType : uint8_t { kCpu, kCuda, kMeta };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int16_t index = 0;
  static Device cpu(int index = 0) { return {DeviceType::kCpu, static_cast<int16_t>(index)}; }
  static Device cuda(int index = 0) { return {DeviceType::kCuda, static_cast<int16_t>(index)}; }
  /// Tensors on meta carry shape and dtype only: a model can be planned without its memory.
  static Device meta() { return {DeviceType::kMeta, 0}; }
  friend bool operator==(Device, Device) = default;
  /// "cpu", "cpu:1", "cuda:0", "meta".
  std::string to_string() const;
};

}  // namespace weft
