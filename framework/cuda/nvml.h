// Power and clocks of a GPU while it works, by NVML (libnvidia-ml), which comes with the driver.
#pragma once
#include <memory>
#include <string>

namespace weft::cuda {

/// One GPU as NVML sees it. Readings are 0 where it has none.
class Nvml {
 public:
  /// By the bus of GpuProperties::pci_bus. Where NVML is not there, why_not() says so and nothing is read.
  explicit Nvml(const std::string& pci_bus);
  const std::string& why_not() const { return why_not_; }
  /// Watts drawn now.
  double watts() const;
  /// Clock of the multiprocessors now, in MHz.
  double clock_mhz() const;

 private:
  void* device_ = nullptr;
  std::string why_not_;
};

}  // namespace weft::cuda
