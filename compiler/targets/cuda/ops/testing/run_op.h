// For tests: launches the kernels of operations under emulation on host memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compiler/targets/cuda/ops/launches.h"
#include "compiler/targets/cuda/testing/emulate/emulate.h"
#include "ops/testing/cases.h"

namespace weft::cuda {

/// Why an op with a CPU kernel has no own operation on a GPU; empty if it has one.
std::string why_not(const OpDef& op);

/// Empty if both hold the same bytes in row-major order; otherwise the first difference.
std::string first_difference(const Tensor& got, const Tensor& want);

/// Prepares calls, compiles all their kernels together, and runs them.
class OpRunner {
 public:
  /// False if there is no operation. Operands may be views. The kernels may assume addresses of this `alignment`.
  bool prepare(const testing::Case& c, int alignment = 16);
  struct Result {
    std::vector<Tensor> out;
    bool bad = false;
    BadIndex index;  // the report
  };
  /// Runs prepared call i on operands with the layouts for which it was prepared. `in_place`: result 0 is operand 0.
  Result run(size_t i, const std::vector<Tensor>& in, bool in_place = false);
  /// The kernels of all calls, each once.
  const std::vector<Kernel>& kernels() const { return kernels_; }

 private:
  struct Call {
    std::unique_ptr<DeviceOperation> op;
    Types out;
  };
  std::vector<Call> calls_;
  std::vector<Kernel> kernels_;
  std::unique_ptr<Emulated> emulated_;
};

}  // namespace weft::cuda
