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

}  // namespace
}  // namespace weft::testing
