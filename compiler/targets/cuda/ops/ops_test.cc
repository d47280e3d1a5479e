// Every op that the loop IR does not lower, launch by launch in the emulation, has the same bits as its CPU kernel.
#include "compiler/targets/cuda/ops/ops.h"

#include <gtest/gtest.h>

#include "compiler/loop_ir/lower_group.h"
#include "compiler/targets/cuda/ops/testing/run_op.h"
#include "ops/all_ops.h"
#include "ops/testing/cases.h"

namespace weft::cuda {
namespace {

// The loop IR supports it as the only op of a body.
bool loop_ir_lowers(const testing::Case& c) {
  Graph g;
  Node n;
  n.op = c.op;
  n.attrs = c.attrs;
  for (const Tensor& x : c.in) n.inputs.push_back(g.add_input(x.type()));
  for (const TensorType& t : testing::infer(c, c.in)) n.outputs.push_back(t);
  const size_t results = n.outputs.size();
  const int32_t id = g.add(std::move(n));
  for (size_t i = 0; i < results; ++i) g.outputs.push_back({id, static_cast<int32_t>(i)});
  return loop_ir::cannot_lower(g).empty();
}

class CudaOps : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(CudaOps, GivesTheBitsOfTheCpu) {
  const OpDef& op = *GetParam();
  if (!why_not(op).empty()) GTEST_SKIP() << op.name << ": " << why_not(op);
  std::vector<testing::Case> cases;
  for (testing::Case& c : testing::cases_of(op))
    if (!loop_ir_lowers(c)) cases.push_back(std::move(c));
  OpRunner runner;
  for (const testing::Case& c : cases) ASSERT_TRUE(runner.prepare(c)) << op.name << ", " << c.label << ": no CUDA form";
  for (size_t i = 0; i < cases.size(); ++i) {
    const testing::Case& c = cases[i];
    const std::vector<Tensor> want = testing::run(c, c.in);
    const OpRunner::Result got = runner.run(i, c.in);
    ASSERT_FALSE(got.bad) << op.name << ", " << c.label;
    ASSERT_EQ(got.out.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k)
      ASSERT_EQ(first_difference(got.out[k], want[k]), "") << op.name << ", " << c.label << ", result " << k;
  }
}

// All ops that have their own kernel on the CPU and none here, with the reason.
TEST(CudaOpsList, OnlyThese) {
  std::vector<std::string> names;
  for (const OpDef* op : all_ops())
    if (op->kernel && !op->is(kCollective) && !why_not(*op).empty()) names.push_back(op->name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"window_sum", "dot", "grouped_dot", "debug_print", "linear_cross_entropy",
                                      "linear_cross_entropy_grad", "attention", "attention_backward", "solve", "lu",
                                      "determinant", "cofactors", "cholesky", "qr", "eigh", "svd", "matrix_exp"}));
}

std::vector<const OpDef*> with_samples() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : all_ops())
    if (op->samples) ops.push_back(op);
  return ops;
}

INSTANTIATE_TEST_SUITE_P(All, CudaOps, ::testing::ValuesIn(with_samples()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace weft::cuda
