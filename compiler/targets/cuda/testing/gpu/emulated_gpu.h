// A GPU for tests on machines without one. The fake driver checks and records all calls, the emulation runs the
// kernels' own text, and a fake cuBLASLt checks and computes. A wrong call fails the test that made it.
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
  bool no_leaks = true;  // anything of the driver that is left at the end fails the test
};

/// While it lives, Device::cuda(0) is the emulated GPU, for eager ops and for anything that runs Operations:
///   ScopedEmulatedGpu gpu;
///   Tensor y = (x.to(Device::cuda()) * 2 + 1).to(Device::cpu());
/// Tensors on it and executables that hold Operations must be destroyed first. Only one may exist at a time.
class ScopedEmulatedGpu {
 public:
  explicit ScopedEmulatedGpu(EmulatedGpuOptions options = {});
  /// Fails the running test with every error of the driver and cuBLASLt, and with the objects that were not freed.
  ~ScopedEmulatedGpu();
  ScopedEmulatedGpu(const ScopedEmulatedGpu&) = delete;

  FakeDriver& driver() { return driver_; }
  FakeCublasLt& cublaslt() { return blas_; }
  /// The errors of the driver and cuBLASLt since the last call. These errors no longer fail the test.
  std::vector<std::string> take_faults();

 private:
  struct Entry {
    std::shared_ptr<Emulated> emulated;
    Kernel kernel;
  };
  std::vector<std::string> images_of(std::span<const Kernel> kernels);
  std::optional<FakeKernel> find(const void* image, const std::string& symbol);

  EmulatedGpuOptions options_;
  std::vector<Entry> kernels_;  // index: number in a module's image
  size_t faults_seen_ = 0;
  FakeDriver driver_;
  FakeCublasLt blas_{&driver_};
  std::optional<ScopedDriver> in_place_;
};

}  // namespace weft::cuda::testing
