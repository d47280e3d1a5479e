#include "framework/cuda/libraries/nvml.h"

#include <cstdint>

#include "framework/base/error.h"
#include "framework/cuda/libraries/dynamic_library.h"

namespace weft::cuda {
namespace {

constexpr int kClockSm = 1;

// As declared in nvml.h; a device is an opaque pointer, 0 is success.
struct NvmlFunctions {
  int (*init)() = nullptr;
  int (*by_bus)(const char*, void**) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;  // milliwatts
  int (*clock)(void*, int, unsigned*) = nullptr;
  std::string why_not;
};

const NvmlFunctions& functions() {
  static const NvmlFunctions f = [] {
    NvmlFunctions f;
    const DynamicLibrary library{"libnvidia-ml.so.1", "libnvidia-ml.so"};
    const WantedSymbol wanted[] = {{"nvmlInit_v2", reinterpret_cast<void**>(&f.init)},
                                   {"nvmlDeviceGetHandleByPciBusId_v2", reinterpret_cast<void**>(&f.by_bus)},
                                   {"nvmlDeviceGetPowerUsage", reinterpret_cast<void**>(&f.power)},
                                   {"nvmlDeviceGetClockInfo", reinterpret_cast<void**>(&f.clock)}};
    f.why_not = library.open() ? library.fill(wanted) : library.why_not();
    if (!f.why_not.empty()) return f;
    if (const int error = f.init()) f.why_not = str_cat("nvmlInit_v2 gave error ", error);
    return f;
  }();
  return f;
}

}  // namespace

Nvml::Nvml(const std::string& pci_bus) : why_not_(functions().why_not) {
  if (!why_not_.empty()) return;
  if (const int error = functions().by_bus(pci_bus.c_str(), &device_)) {
    device_ = nullptr;
    why_not_ = str_cat("NVML has no GPU at ", pci_bus, " (error ", error, ")");
  }
}

double Nvml::watts() const {
  unsigned mw = 0;
  return device_ && functions().power(device_, &mw) == 0 ? mw / 1e3 : 0;
}

double Nvml::clock_mhz() const {
  unsigned mhz = 0;
  return device_ && functions().clock(device_, kClockSm, &mhz) == 0 ? mhz : 0;
}

}  // namespace weft::cuda
