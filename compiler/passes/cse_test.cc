#include "compiler/passes/cse.h"

#include <gtest/gtest.h>

#include "compiler/passes/dce.h"
#include "compiler/passes/testing/random_ops_graph.h"
#include "framework/dispatch/dispatch.h"
#include "framework/ir/rewrite.h"
#include "framework/ir/testing/test_ops.h"
#include "ops/all_ops.h"

namespace weft {
namespace {

using testing::test_ops;

std::string merged(std::string_view body) {
  Ref<Graph> g = parse_graph(str_cat("graph captured (%0: f32[2], %1: f32[2]) {\n", body, "\n}"), test_ops()),
             now = cse(*g);
  if (!now) return "unchanged";
  verify(*now);
  EXPECT_FALSE(cse(*now));
  if (Ref<Graph> live = dce(*now)) now = live;
  return now->to_string();
}

TEST(Cse, MergesEqualNodes) {
  EXPECT_EQ(merged(R"(
    cell c0 "w" parameter f32[2]
    %2 = cell c0
    %3 = cell c0
    %4 = add %0, %2    # model.cc:1
    %5 = add %3, %0    # model.cc:2
    %6.0, %6.1 = split %4
    %7.0, %7.1 = split %5
    %8 = add %6.1, %7.0
    return %8, %7.1)"),
            R"(graph captured (%0: f32[2], %1: f32[2]) {
  cell c0 "w" parameter f32[2]
  %2 = cell c0 : f32[2]
  %3 = add %0, %2 : f32[2]                                  # model.cc:1
  %4.0, %4.1 = split %3 : f32[2], f32[2]
  %5 = add %4.1, %4.0 : f32[2]
  return %5, %4.1
}
)");
}

TEST(Cse, LeavesApartWhatDiffers) {
  EXPECT_EQ(merged("%2 = neg %0 {op_id=1}\n %3 = neg %0 {op_id=2}\n return %2, %3"), "unchanged");
  EXPECT_EQ(merged("%2 = neg %0 {k=0.0}\n %3 = neg %0 {k=-0.0}\n return %2, %3"), "unchanged");
  EXPECT_EQ(merged("debug_print %0\n debug_print %0\n return"), "unchanged");
  EXPECT_EQ(merged("%2 = call %0 {body=graph joint (%0: f32[2]) { return %0 }}\n"
                   "%3 = call %0 {body=graph joint (%0: f32[2]) { return %0 }}\n return %2, %3"),
            "unchanged");  // structural
}

TEST(Cse, WhilstGradIsPendingItsOperandsStay) {
  constexpr const char* kBody = "%2 = neg %0\n %3 = neg %0\n %4 = sum %2\n";
  EXPECT_EQ(merged(str_cat(kBody, "%5 = grad %4, %3 : f32[]\n return %5")), "unchanged");
  EXPECT_EQ(merged(str_cat(kBody, "%5 = grad %4, %2 : f32[]\n return %5, %3")), "unchanged");
  EXPECT_NE(merged(str_cat(kBody, "%5 = grad %4, %0 : f32[]\n return %5, %3")), "unchanged");
  constexpr const char* kNoGrad = "%2 = neg %0 no_grad\n %3 = neg %0\n %4 = sum %2\n";
  EXPECT_EQ(merged(str_cat(kNoGrad, "%5 = grad %4, %0 : f32[]\n return %5, %3")), "unchanged");
  EXPECT_NE(merged(str_cat(kNoGrad, "return %4, %3")), "unchanged");
}

TEST(Cse, RandomGraphsShrinkAndSettleAtOnce) {
  std::mt19937 random(4);
  for (int i = 0; i < 200; ++i) {
    Ref<Graph> g = testing::random_graph(random, 40), now = cse(*g);
    if (!now) continue;
    verify(*now);
    EXPECT_LT(now->size(), g->size());
    EXPECT_FALSE(cse(*now));
  }
}

TEST(Cse, CommutativeOpsAreSoToTheBit) {
  std::mt19937 random(6);
  int tried = 0;
  for (const OpDef* op : all_ops()) {
    if (!op->is(kCommutative) || op->num_inputs != 2) continue;
    for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
      TensorType type{t, Device::cpu(), {64, 64}};
      Tensor a = testing::random_tensor(random, type), b = testing::random_tensor(random, type);
      try {
        Tensor x = dispatch(*op, {&a, &b}), y = dispatch(*op, {&b, &a});
        EXPECT_EQ(testing::difference(x, y), "") << op->name;
        ++tried;
      } catch (const Error&) {  // not of this dtype
      }
    }
  }
  EXPECT_GT(tried, 20);
}

TEST(Cse, TenThousandsOfNodesAreQuick) {  // a quadratic pass would run into the test's time limit
  Graph g;
  Value x = g.add_input({kFloat32, Device::cpu(), {2}});
  for (int i = 0; i < 200000; ++i) {
    Node n;
    n.op = &testing::neg_op;
    n.inputs = {i % 2 ? Value{g.size() - 1, 0} : x};
    n.attrs = {{"k", static_cast<int64_t>(i / 4)}};
    n.outputs = {g.type(x)};
    g.add(std::move(n));
  }
  g.outputs = {{g.size() - 1, 0}};
  Ref<Graph> now = cse(g);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->size(), 100001);
  EXPECT_EQ(dce(*now)->size(), 3);
}

}  // namespace
}  // namespace weft
