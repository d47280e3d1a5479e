// Tests the list of records as a whole.
#include <gtest/gtest.h>

#include <set>

#include "framework/autodiff/grad.h"
#include "ops/all_ops.h"
#include "ops/testing/op_table.h"
#include "ops/testing/reference.h"

namespace weft::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpTable);

namespace {

TEST(AllOps, NamesAreUnique) {
  std::set<std::string> names;
  for (const OpDef* op : all_ops()) EXPECT_TRUE(names.insert(op->name).second) << op->name;
}

TEST(AllOps, EachHasAReference) {
  for (const OpDef* op : tested(all_ops())) EXPECT_NE(find_reference(*op), nullptr) << op->name;
}

TEST(AllOps, HoldDifferentiationsOps) {
  for (const OpDef* op : autodiff_ops()) EXPECT_EQ(op_table().find(op->name), op) << op->name;
}

// Passes conclude one property from another.
TEST(AllOps, PropertiesAgree) {
  for (const OpDef* op : all_ops()) {
    SCOPED_TRACE(op->name);
    EXPECT_EQ(op->leaf, weft::internal::Leaf::kNone);  // only the structural ops of framework/ir
    if (op->placing != Placing::kNone) {
      EXPECT_TRUE(op->is(kView) && op->view && op->num_inputs == 1 && op->num_outputs == 1);
    }
    if (op->reduction != Reduction::kNone) {
      EXPECT_TRUE(op->is(kReduction) && op->num_inputs == 1);
    }
    if (op->is(kPicks) || op->is(kAddsAtIndex)) {
      EXPECT_TRUE(op->is(kIndexing));
    }
    if (op->is(kProduct) || op->is(kAttention) || op->is(kLinearLoss)) {
      EXPECT_TRUE(op->is(kContraction));
    }
    if (op->is(kFromAttrs)) {
      EXPECT_TRUE(op->num_inputs == 0 && op->num_outputs == 1 && op->kernel);
    }
    if (op->is(kRunsBody)) {
      EXPECT_FALSE(op->kernel);
    }
    if (op->start) {
      EXPECT_TRUE(op->is(kCollective) && op->start->is(kCollective) && !op->start->start);
    }
  }
}

}  // namespace
}  // namespace weft::testing
