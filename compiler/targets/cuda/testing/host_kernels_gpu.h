// A GPU for tests of compiled steps. Every launch goes through the fake driver, as parameters of a kernel, and runs the
// CPU's kernel of the op on the GPU's memory. So a step on it has the CPU's bits, and comparisons test the path: order,
// addresses, lifetimes, captures and replays. (compiler/targets/cuda/testing/gpu/emulated_gpu.h runs the GPU's own
// kernels.)
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/cuda/module.h"
#include "framework/cuda/testing/fake_driver.h"

namespace weft::internal {

class HostKernelsGpu {
 public:
  /// `idle`: kernels, copies and waits of the host do nothing and cost nothing, to time the code that queues them.
  explicit HostKernelsGpu(cuda::testing::FakeGpu gpu = {}, bool idle = false);
  /// Fails the running test with the driver's complaints and with the objects left behind. Tensors, cells and compiled
  /// functions on the GPU must have gone.
  ~HostKernelsGpu();
  HostKernelsGpu(const HostKernelsGpu&) = delete;

  cuda::testing::FakeDriver& driver() { return driver_; }
  /// Calls of the driver that put work on streams or wait, since the last call: {"cuGraphLaunch", 1}; zeros left out.
  std::map<std::string, int> take_calls();

 private:
  friend struct HostKernels;
  cuda::testing::FakeDriver driver_;
  std::optional<cuda::ScopedDriver> in_place_;
  std::map<std::string, int> seen_;
};

}  // namespace weft::internal
