// Every record with extreme integers in its attributes: an error of the user, or results of the inferred types. The
// sanitizers report overflows.
#include <gtest/gtest.h>

#include <limits>

#include "framework/autodiff/grad.h"
#include "ops/all_ops.h"
#include "ops/testing/cases.h"
#include "ops/testing/op_table.h"

namespace weft::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpTable);

namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kExtremes[] = {kLeast,
                                 kLeast + 1,
                                 -(int64_t{1} << 31) - 1,
                                 -1,
                                 0,
                                 1,
                                 2,
                                 int64_t{1} << 31,
                                 int64_t{1} << 32,
                                 int64_t{1} << 58,
                                 int64_t{1} << 61,
                                 int64_t{1} << 62,
                                 kMost - 1,
                                 kMost};

// The attributes with one integer, or all integers of one list, replaced by `extreme`.
std::vector<Attrs> replaced(const Attrs& attrs, int64_t extreme) {
  std::vector<Attrs> all;
  for (const auto& [key, value] : attrs.entries()) {
    if (std::holds_alternative<int64_t>(value)) all.push_back(attrs.with(key, extreme));
    const Shape* list = std::get_if<Shape>(&value);
    if (!list || list->empty()) continue;
    for (int i = 0; i < list->size(); ++i) {
      Shape one = *list;
      one[i] = extreme;
      all.push_back(attrs.with(key, one));
    }
    all.push_back(attrs.with(key, Shape::filled(list->size(), extreme)));
  }
  return all;
}

bool is_small(const Types& types) {
  for (const TensorType& t : types)
    if (t.nbytes() > 1 << 16) return false;
  return true;
}

void check(const Case& c) {
  Types types;
  try {
    types = infer(c, c.in);
    std::vector<TensorType> in;
    for (const Tensor& t : c.in) in.push_back(t.type());
    for (const TensorType& t : types) {
      for (int64_t n : t.shape) EXPECT_GE(n, 0);
      EXPECT_LT(t.nbytes(), int64_t{1} << 61);
    }
    c.op->dims(c.attrs, in, types);
    op_cost(*c.op, c.attrs, in, types);
    if (!is_small(types) || c.op->is(kCollective)) return;
    const std::vector<Tensor> out = run(c, c.in);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i].type(), types[i]);
    if (!c.op->vjp || c.op->is(kNotDifferentiable) || !is_floating(out[0].dtype())) return;
    std::vector<Tensor> leaves, all = c.in;
    for (Tensor& t : all)
      if (is_floating(t.dtype())) leaves.push_back(t = t.requires_grad());
    if (!leaves.empty()) grad(run(c, all)[0], leaves, {.grad_output = internal::full_of(types[0], 1)});
  } catch (const Error& e) {
    EXPECT_NE(e.code(), Code::kInternal) << e.what();
  }
}

TEST_F(OpTable, ExtremeAttributes) {
  for (const OpDef* op : tested(all_ops()))
    for (const weft::internal::Sample& sample : op->samples()) {
      if (!sample.error.empty()) continue;
      Case c = make_case(*op, sample, kFloat32, 1);
      for (int64_t extreme : kExtremes)
        for (const Attrs& attrs : replaced(sample.attrs, extreme)) {
          Case changed = c;
          changed.attrs = attrs;
          std::string text;
          for (const auto& [key, value] : attrs.entries()) {
            if (const auto* i = std::get_if<int64_t>(&value)) text += str_cat(key, "=", *i, " ");
            if (const auto* list = std::get_if<Shape>(&value)) text += str_cat(key, "=", *list, " ");
          }
          SCOPED_TRACE(str_cat(op->name, " {", text, "}"));
          check(changed);
          if (HasFailure()) return;
        }
    }
}

}  // namespace
}  // namespace weft::testing
