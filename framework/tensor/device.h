// The device of a tensor. CPU devices are indexed by rank; meta tensors have a type but no memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

namespace weft {

/// kOther is the device of a target that is not part of Weft (framework/dispatch/device/target.h).
enum class DeviceType : uint8_t { kCpu, kCuda, kMeta, kOther };
inline constexpr int kDeviceTypes = 4;
// PyTorch's names in C++: x.to(kCUDA).
inline constexpr DeviceType kCPU = DeviceType::kCpu, kCUDA = DeviceType::kCuda;

struct Device {
  using Loc = std::source_location;
  DeviceType type = DeviceType::kCpu;
  int16_t index = 0;
  constexpr Device() = default;
  constexpr Device(DeviceType type, int64_t index = 0) : type(type), index(static_cast<int16_t>(index)) {}
  /// The device of this name: "cpu", "cuda", "cuda:1", "meta". Throws for another name.
  template <size_t n>
  Device(const char (&name)[n], Loc loc = Loc::current()) : Device(named(name, loc)) {}
  Device(const std::string& name, Loc loc = Loc::current()) : Device(named(name, loc)) {}
  static Device cpu(int index = 0) { return {DeviceType::kCpu, index}; }
  static Device cuda(int index = 0) { return {DeviceType::kCuda, index}; }
  /// Tensors on meta carry shape and dtype only: a model can be planned without its memory.
  static Device meta() { return DeviceType::kMeta; }
  static Device other(int index = 0) { return {DeviceType::kOther, index}; }
  /// The device of this name; nullopt if there is none.
  static std::optional<Device> parse(std::string_view name);
  /// True if values are in the memory of a target other than the CPU's.
  bool is_accelerator() const { return type == DeviceType::kCuda || type == DeviceType::kOther; }
  friend bool operator==(Device, Device) = default;
  /// "cpu", "cpu:1", "cuda:0", "meta", "other:0".
  std::string to_string() const;

 private:
  static Device named(std::string_view name, Loc loc);
};
std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace weft
