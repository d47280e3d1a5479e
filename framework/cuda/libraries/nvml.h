// Power and clocks of a GPU at work, from NVML (libnvidia-ml), which is part of the driver.
#pragma once
#include <memory>
#include <string>

namespace weft::cuda {

/// One GPU in NVML. Readings are 0 if it has none.
class Nvml {
 public:
  /// Finds the GPU by GpuProperties::pci_bus. If NVML is missing, why_not() gives the reason and nothing is read.
  explicit Nvml(const std::string& pci_bus);
  const std::string& why_not() const { return why_not_; }
  /// Current power in watts.
  double watts() const;
  /// Current clock of the multiprocessors, in MHz.
  double clock_mhz() const;

 private:
  void* device_ = nullptr;
  std::string why_not_;
};

}  // namespace weft::cuda
