// For tests: operations launched kernel by kernel under emulation on host memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compiler/targets/cuda/ops/launches.h"
#include "compiler/targets/cuda/testing/emulate/emulate.h"
#include "ops/testing/cases.h"

namespace weft::cuda {

/// Empty if both hold the same bytes in row-major order; else says where they differ first.
std::string first_difference(const Tensor& got, const Tensor& want);

/// Prepares calls, compiles all their kernels at once, runs them.
class OpRunner {
 public:
  /// False where there is no operation. Operands may be views; `alignment` is what the kernels rely on.
  bool prepare(const testing::Case& c, int alignment = 16);
  struct Result {
    std::vector<Tensor> out;
    bool bad = false;
    BadIndex index;  // what is known of it
  };
  /// Runs prepared call i on operands that lie as those it was prepared with. `in_place`: result 0 is operand 0.
  Result run(size_t i, const std::vector<Tensor>& in, bool in_place = false);
  /// Kernels of all calls, each once.
  const std::vector<Kernel>& kernels() const { return kernels_; }

 private:
  struct Call {
    std::unique_ptr<Operation> op;
    Types out;
  };
  std::vector<Call> calls_;
  std::vector<Kernel> kernels_;
  std::unique_ptr<Emulated> emulated_;
};

}  // namespace weft::cuda
