#include "ops/composite/testing/composite_table.h"

#include <algorithm>
#include <cmath>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/interpreter.h"
#include "framework/ir/rewrite.h"
#include "framework/testing/gradcheck.h"
#include "ops/all_ops.h"

namespace weft::testing {

void PrintTo(const CompositeRow& row, std::ostream* out) { *out << row.name; }

namespace {

std::vector<Tensor> operands(const CompositeRow& row, DType t) {
  Random random(42);
  std::vector<Tensor> in;
  for (const Operand& o : row.in)
    in.push_back(random_tensor(o.dtype == kFloat32 ? t : o.dtype, o.shape, random, o.lo, o.hi));
  return in;
}

TensorFn function_of(const CompositeRow& row) {
  return [&row](std::span<const Tensor> in) { return std::vector<Tensor>{row.fn(in)}; };
}

std::vector<TensorType> types_of(const std::vector<Tensor>& in) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  return types;
}

std::vector<Tensor> with_gradients(const TensorFn& fn, std::span<const Tensor> given) {
  std::vector<Tensor> in(given.begin(), given.end()), leaves;
  for (Tensor& t : in)
    if (is_floating(t.dtype())) leaves.push_back(t = t.requires_grad());
  Tensor y = fn(in)[0];
  std::vector<Tensor> out = grad(y, leaves, {.grad_output = internal::full_of(y.type(), 1)});
  out.insert(out.begin(), y);
  return out;
}

}  // namespace

TEST_P(Composite, MatchesTheReference) {
  const CompositeRow& row = GetParam();
  for (DType t : {kFloat64, kFloat32, kBFloat16, kFloat16}) {
    SCOPED_TRACE(str_cat(t));
    std::vector<Tensor> in = operands(row, t);
    std::vector<Reals> values;
    for (const Tensor& x : in) values.push_back(to_reals(x));
    Tensor y = row.fn(in);
    const DType computed = t == kFloat64 && row.least != kFloat32 ? kFloat64 : kFloat32;
    EXPECT_EQ(y.dtype(), row.wide && t != kFloat64 ? kFloat32 : t);
    const Reals want = row.reference(values);
    Real scale = row.magnitude;
    for (Real w : want) scale = std::max(scale, std::fabs(w));
    Reals bound;
    for (Real w : want)
      bound.push_back(scale * (row.roundings * unit_roundoff(computed) + row.stored * unit_roundoff(t)) +
                      std::fabs(w) * unit_roundoff(y.dtype()));
    EXPECT_TRUE(within(y, want, bound));
  }
}

TEST_P(Composite, HasTheRightDerivative) {
  const CompositeRow& row = GetParam();
  std::vector<Tensor> in = operands(row, kFloat64);
  EXPECT_TRUE(gradcheck(function_of(row), in, {.elements = 12}));
  if (row.second) {
    EXPECT_TRUE(gradgradcheck(function_of(row), in, {.elements = 4}));
  }
}

TEST_P(Composite, GivesTheSameBitsCaptured) {
  const CompositeRow& row = GetParam();
  for (DType t : {kFloat32, kBFloat16}) {
    SCOPED_TRACE(str_cat(t));
    std::vector<Tensor> in = operands(row, t);
    TensorFn fn = [&](std::span<const Tensor> a) { return with_gradients(function_of(row), a); };
    std::vector<Tensor> eager = fn(in);
    Ref<Graph> joint = expand_grad(*capture_graph(fn, types_of(in)));
    verify(*joint);
    EXPECT_TRUE(structurally_equal(*parse_graph(joint->to_string(), op_table()), *joint));
    std::vector<Tensor> captured = interpret(*joint, in);
    ASSERT_EQ(eager.size(), captured.size());
    for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(captured[i], eager[i])) << "result " << i;
  }
}

TEST_P(Composite, GivesTheSameBitsCompiled) {
  const CompositeRow& row = GetParam();
  for (DType t : {kFloat32, kBFloat16}) {
    SCOPED_TRACE(str_cat(t));
    std::vector<Tensor> in = operands(row, t);
    auto fn = [&](std::vector<Tensor> a) { return with_gradients(function_of(row), a); };
    std::vector<Tensor> eager = fn(in), compiled = compile(fn)(in);
    ASSERT_EQ(eager.size(), compiled.size());
    for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(compiled[i], eager[i])) << "result " << i;
  }
}

TEST_P(Composite, KeepsTheUsersLine) {
  const CompositeRow& row = GetParam();
  Ref<Graph> g = capture_graph(function_of(row), types_of(operands(row, kFloat32)));
  for (int32_t id = 0; id < g->size(); ++id) {
    const Node& n = g->node(id);
    if (n.op->is(kStructural) && n.op != &stop_gradient_op) continue;
    const std::string line = n.line.to_string();
    EXPECT_NE(line.find("_test.cc"), std::string::npos) << n.op->name << " points at " << line;
  }
}

}  // namespace weft::testing
