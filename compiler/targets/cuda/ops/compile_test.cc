// The kernels of these ops compile with NVRTC for the tested architectures, within their limits.
#include <gtest/gtest.h>

#include <set>

#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/ops/ops.h"
#include "compiler/targets/cuda/ops/testing/run_op.h"
#include "ops/all_ops.h"

namespace weft::cuda {
namespace {

// One kernel of each form: kernels that differ only in extents or constants are compiled once.
std::string form_of(const Kernel& k) {
  std::string s;
  for (char c : k.symbol)
    if (c < '0' || c > '9' || s.ends_with("f") || s.ends_with("i") || s.ends_with("u")) s += c;
  return s;
}

TEST(CudaOpsCompile, OnEveryArchitecture) {
  std::set<std::string> forms;
  std::vector<Kernel> kernels;
  for (const OpDef* op : all_ops()) {
    if (!op->samples || !why_not(*op).empty() || (op->is(kPointwise) && op->scalar >= 0)) continue;
    OpRunner runner;
    for (DType t : {kBFloat16, kFloat64})
      for (const testing::Case& c : testing::cases_of(*op, t)) runner.prepare(c);
    for (const Kernel& k : runner.kernels())
      if (forms.insert(form_of(k)).second) kernels.push_back(k);
  }
  EXPECT_GT(kernels.size(), 30u);
  WEFT_EXPECT_COMPILES(kernels);
}

}  // namespace
}  // namespace weft::cuda
