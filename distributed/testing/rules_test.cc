// Checks that no rule of any op is wrong or missing, like DTensor's strategy_validation for its strategies.
#include <gtest/gtest.h>

#include "distributed/testing/rule_check.h"
#include "ops/all_ops.h"

namespace weft::testing {

using weft::internal::Sample;

namespace {

class Rules : public ::testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& op() const { return *GetParam(); }
};

// Ops that cannot be split, and why.
struct Unsplittable {
  std::string_view op;
  const char* reason;
};
constexpr Unsplittable kUnsplittable[] = {
    {"constant", "a number has no dims"},
    {"expert_order", "an order of all tokens"},
};

TEST_P(Rules, NoneIsWrong) {
  int tried = 0;
  std::string wrong;
  for (const Sample& s : rule_samples(op())) {
    const WrongReport r = wrong_splits(op(), s);
    tried += r.tried;
    for (const std::string& w : r.wrong) wrong += "\n  " + w;
  }
  RecordProperty("tried", tried);
  EXPECT_TRUE(wrong.empty()) << wrong;
  bool excused = false;
  for (const Unsplittable& u : kUnsplittable) excused |= u.op == op().name;
  EXPECT_NE(tried > 0, excused) << "splits tried: " << tried;
}

TEST_P(Rules, NoneIsMissing) {
  if (const char* reason = only_wrong(op())) GTEST_SKIP() << reason;
  int valid = 0;
  std::string missing;
  for (const Sample& s : rule_samples(op())) {
    const MissingReport r = missing_splits(op(), s);
    valid += r.valid;
    for (const std::string& m : r.missing) missing += "\n  " + m;
  }
  RecordProperty("valid", valid);
  EXPECT_TRUE(missing.empty()) << missing;
}

INSTANTIATE_TEST_SUITE_P(Ops, Rules, ::testing::ValuesIn(ruled_ops()),
                         [](const auto& info) { return std::string(info.param->name); });

// Records with an error, which the validator must find.
DimMap all_pass(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return DimMap::pointwise(in, out);
}
DimMap none_pass(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return DimMap::parse("a? b? -> a? b?", in, out);
}
const Sample kMatrix{{{Shape{4, 6}}}, {}};
const Sample kAlong{{{Shape{4, 6}}}, {{"dim", int64_t{1}}, {"reverse", false}}};

TEST(RuleValidator, SeesSplitsThatAreWrong) {
  OpDef op = *op_table().find("cumsum");
  EXPECT_TRUE(wrong_splits(op, kAlong).wrong.empty());
  op.dims = all_pass;
  EXPECT_FALSE(wrong_splits(op, kAlong).wrong.empty());
  op = *op_table().find("square");
  EXPECT_TRUE(wrong_splits(op, kMatrix).wrong.empty());
  op.linear = 1;
  EXPECT_FALSE(wrong_splits(op, kMatrix).wrong.empty());
  op = *op_table().find("add");
  const Sample two{{{Shape{4, 6}}, {Shape{4, 6}}}, {}};
  EXPECT_TRUE(wrong_splits(op, two).wrong.empty());
  op.jointly = false;
  EXPECT_FALSE(wrong_splits(op, two).wrong.empty());
}

TEST(RuleValidator, SeesSplitsThatAreMissing) {
  OpDef op = *op_table().find("exp");
  EXPECT_TRUE(missing_splits(op, kMatrix).missing.empty());
  op.dims = none_pass;
  EXPECT_EQ(missing_splits(op, kMatrix).missing.size(), 2u);
  op = *op_table().find("neg");
  EXPECT_TRUE(missing_splits(op, kMatrix).missing.empty());
  op.linear = 0;
  EXPECT_EQ(missing_splits(op, kMatrix).missing.size(), 1u);
}

}  // namespace
}  // namespace weft::testing
