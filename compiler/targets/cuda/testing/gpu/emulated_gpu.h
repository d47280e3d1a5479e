// A GPU for tests on machines without one: the fake driver keeps books, kernels are run by the emulation of their own
// text, cuBLASLt is the one that checks and computes. What is done wrongly fails the test that did it.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/targets/cuda/testing/emulate/emulate.h"
#include "framework/cuda/testing/fake_cublaslt.h"
#include "framework/cuda/testing/fake_driver.h"

namespace weft::cuda::testing {

struct EmulatedGpuOptions {
  FakeGpu gpu;
  bool races = true;     // EmulatedOptions::races
  bool no_leaks = true;  // whatever of the driver is left at the end fails the test
};

/// As long as it lives, Device::cuda(0) is the emulated GPU, for eager ops and whatever else runs Operations:
///   ScopedEmulatedGpu gpu;
///   Tensor y = (x.to(Device::cuda()) * 2 + 1).to(Device::cpu());
/// Tensors on it and executables that hold Operations must go first. One at a time.
class ScopedEmulatedGpu {
 public:
  explicit ScopedEmulatedGpu(EmulatedGpuOptions options = {});
  /// Fails the running test with every complaint of driver and cuBLASLt, and with what was left behind.
  ~ScopedEmulatedGpu();
  ScopedEmulatedGpu(const ScopedEmulatedGpu&) = delete;

  FakeDriver& driver() { return driver_; }
  FakeCublasLt& cublaslt() { return blas_; }
  /// Complaints of the driver and of cuBLASLt since the last call; such faults do not fail the test any more.
  std::vector<std::string> take_faults();

 private:
  struct Entry {
    std::shared_ptr<Emulated> emulated;
    Kernel kernel;
  };
  std::vector<std::string> images_of(std::span<const Kernel> kernels);
  std::optional<FakeKernel> find(const void* image, const std::string& symbol);

  EmulatedGpuOptions options_;
  std::vector<Entry> kernels_;  // by the number in a module's image
  size_t faults_seen_ = 0;
  FakeDriver driver_;
  FakeCublasLt blas_{&driver_};
  std::optional<ScopedDriver> in_place_;
};

}  // namespace weft::cuda::testing
