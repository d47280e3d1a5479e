#include "compiler/passes/channels_last.h"

#include <gtest/gtest.h>

#include "compiler/passes/dce.h"
#include "compiler/passes/lower.h"
#include "compiler/passes/testing/random_ops_graph.h"
#include "framework/ir/rewrite.h"
#include "ops/all_ops.h"
#include "ops/core/creation.h"

namespace weft {
namespace {

struct Changed {
  Ref<Graph> graph;
  std::string text;  // "unchanged": the pass changed nothing
};

// Runs the pass on the lowered graph and compares the bits.
Changed channels_last_of(const std::string& text) {
  const Ref<Graph> g = internal::lower(*parse_graph(text, op_table()));
  Ref<Graph> now = channels_last(*g);
  if (!now) return {g, "unchanged"};
  verify(*now);
  if (Ref<Graph> live = dce(*now)) now = live;
  EXPECT_FALSE(channels_last(*now)) << now->to_string();
  std::mt19937 random(5);
  for (int i = 0; i < 10; ++i) {
    const std::vector<Tensor> args = testing::random_arguments(random, *g);
    EXPECT_EQ(testing::difference(*g, *now, args), "") << now->to_string();
  }
  return {now, now->to_string()};
}

int count(const Graph& g, const std::string& op) {
  int n = 0;
  for (int32_t id = 0; id < g.size(); ++id) n += g.node(id).op->name == op;
  return n;
}

const std::string kConv = "{stride=[1, 1], lo=[1, 1], hi=[1, 1], dilation=[1, 1], interior=[0, 0], groups=1}";

TEST(ChannelsLast, NothingMovesBetweenTwoConvolutions) {
  const Changed c = channels_last_of(R"(graph joint (%0: f32[2, 3, 5, 4], %1: f32[4, 3, 3, 3], %2: f32[6, 4, 3, 3],
                                                     %3: f32[1, 4, 1, 1]) {
    %4 = conv %0, %1 )" + kConv + R"(
    %5 = broadcast %3 {shape=[2, 4, 5, 4]}
    %6 = mul %4, %5
    %7 = tanh %6
    %8 = conv %7, %2 )" + kConv + R"(
    return %8
  })");
  // One permute of the argument and one of the result. A product reads weights in any order.
  EXPECT_EQ(count(*c.graph, "permute"), 2) << c.text;
}

TEST(ChannelsLast, SumsKeepTheOrderOfTheirElements) {
  const Changed c = channels_last_of(R"(graph joint (%0: f32[2, 3, 5, 4], %1: f32[4, 3, 3, 3]) {
    %4 = conv %0, %1 )" + kConv + R"(
    %5 = reduce_sum %4 {dims=[0, 2, 3]}
    %6 = reduce_sum %4 {dims=[1, 2]}
    %7 = reduce_max %4 {dims=[1]}
    return %5, %6, %7
  })");
  EXPECT_NE(c.text.find("reduce_sum %5 {dims=[0, 1, 2]}"), c.text.npos) << c.text;
  EXPECT_NE(c.text.find("{dims=[1, 2]}"), c.text.npos) << c.text;  // [N, C, H, W]: channels are not the last
}

TEST(ChannelsLast, FollowsPadsSlicesWindowsAndConcats) {
  const Changed c = channels_last_of(R"(graph joint (%0: f32[2, 3, 6, 5], %1: f32[4, 3, 3, 3], %2: f32[2, 4, 6, 5]) {
    %3 = conv %0, %1 )" + kConv + R"(
    %4 = pad %3 {lo=[0, 1, 0, 2], hi=[0, 0, 1, 0], value=0.5}
    %5 = slice %4 {begin=[0, 1, 0, 1], end=[2, 5, 7, 7], step=[1, 1, 2, 1]}
    %6 = window %3 {dims=[2, 3], size=[2, 3], stride=[2, 1], dilation=[1, 1]}
    %7 = reduce_max %6 {dims=[4, 5]}
    %8 = concat %3, %2 {dim=1}
    %9 = permute %3 {dims=[3, 2, 1, 0]}
    %10 = add %3, %2
    return %5, %7, %8, %9, %10
  })");
  EXPECT_NE(c.text.find("lo=[0, 0, 2, 1]"), c.text.npos) << c.text;
  EXPECT_NE(c.text.find("{dim=3}"), c.text.npos) << c.text;
}

TEST(ChannelsLast, WhatReadsACellKeepsItsOrder) {
  Ref<Graph> g = parse_graph(R"(graph joint (%0: f32[2, 3, 5, 4], %1: f32[4, 3, 3, 3]) {
    %2 = conv %0, %1 )" + kConv + R"(
    return %2
  })",
                             op_table());
  g = internal::lower(*g);
  const auto scale = make_ref<Cell>();
  scale->value = ones({2, 4, 5, 4});
  scale->type = scale->value.type();
  const Value cell = g->add_cell(scale);
  Node sum;
  sum.op = op_table().find("add");
  sum.inputs = {g->outputs[0], cell};
  sum.outputs.push_back(g->type(cell));
  g->outputs[0] = {g->add(std::move(sum)), 0};
  EXPECT_FALSE(channels_last(*g)) << g->to_string();
}

TEST(ChannelsLast, OtherProductsStay) {
  EXPECT_EQ(channels_last_of(R"(graph joint (%0: f32[4, 3], %1: f32[3, 5]) {
    %2 = dot %0, %1 {a_batch=[], b_batch=[], a_contract=[1], b_contract=[0]}
    %3 = permute %2 {dims=[1, 0]}
    %4 = tanh %3
    return %4
  })")
                .text,
            "unchanged");
}

}  // namespace
}  // namespace weft
