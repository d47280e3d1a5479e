// Tests compiled calls against eager ones: the same bits, also for operands that are not contiguous.
#include <gtest/gtest.h>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "ops/testing/cases.h"
#include "ops/testing/op_table.h"

namespace weft::testing {
namespace {

// 16-bit values are rounded where eager mode rounds them.
const CompileOptions kExact{.numerics = "eager"};

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << "result " << i;
}

}  // namespace

TEST_P(OpTable, CompiledGivesTheSameBits) {
  for (const Case& c : cases_of(op())) {
    if (op().is(kSideEffect)) continue;
    SCOPED_TRACE(c.label);
    auto fn = compile([&](std::vector<Tensor> in) { return run(c, in); }, kExact);
    expect_same(fn(c.in), run(c, c.in));
    for (Layout layout : {Layout::kTransposed, Layout::kStepped}) {
      SCOPED_TRACE(name_of(layout));
      std::vector<Tensor> in = c.in;
      for (Tensor& t : in) t = with_layout(t, layout);
      expect_same(fn(in), run(c, in));
    }
  }
}

TEST_P(OpTable, CompiledGradientsGiveTheSameBits) {
  for (DType t : {kFloat32, kBFloat16})
    for (const Case& c : cases_of(op(), t)) {
      if (!op().vjp || !c.grad || op().is(kSideEffect)) continue;
      SCOPED_TRACE(c.label);
      auto gradients = [&](std::vector<Tensor> in) {
        std::vector<Tensor> leaves;
        for (Tensor& x : in)
          if (is_floating(x.dtype())) leaves.push_back(x = x.requires_grad());
        Tensor y = run(c, in)[0];
        if (!is_floating(y.dtype())) return leaves;
        return grad(y, leaves, {.grad_output = internal::full_of(y.type(), 1)});
      };
      expect_same(compile(gradients, kExact)(c.in), gradients(c.in));
    }
}

}  // namespace weft::testing
