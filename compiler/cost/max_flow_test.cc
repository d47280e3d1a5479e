#include "compiler/cost/max_flow.h"

#include <gtest/gtest.h>

#include <random>

namespace weft {
namespace {

TEST(MaxFlow, TheTextbookNetwork) {
  FlowNetwork f(6);  // Cormen, Leiserson, Rivest, Stein: figure 26.1
  f.add_arc(0, 1, 16);
  f.add_arc(0, 2, 13);
  f.add_arc(1, 3, 12);
  f.add_arc(2, 1, 4);
  f.add_arc(3, 2, 9);
  f.add_arc(2, 4, 14);
  f.add_arc(4, 3, 7);
  f.add_arc(3, 5, 20);
  f.add_arc(4, 5, 4);
  EXPECT_EQ(f.run(0, 5), 23);
  EXPECT_FALSE(f.on_sink_side(0));
  EXPECT_TRUE(f.on_sink_side(5));
}

TEST(MaxFlow, OfEqualCutsTheOneNearestTheSink) {
  FlowNetwork f(4);
  f.add_arc(0, 1, 5);
  f.add_arc(1, 2, 5);
  f.add_arc(2, 3, 5);
  EXPECT_EQ(f.run(0, 3), 5);
  EXPECT_FALSE(f.on_sink_side(1));
  EXPECT_FALSE(f.on_sink_side(2));
}

TEST(MaxFlow, NothingFlowsWithoutAPath) {
  FlowNetwork f(3);
  f.add_arc(0, 1, FlowNetwork::kInfinite);
  EXPECT_EQ(f.run(0, 2), 0);
  EXPECT_FALSE(f.on_sink_side(1));
}

TEST(MaxFlow, APathWithoutBoundIsInfinite) {
  FlowNetwork f(3);
  f.add_arc(0, 1, FlowNetwork::kInfinite);
  f.add_arc(1, 2, FlowNetwork::kInfinite);
  EXPECT_GE(f.run(0, 2), FlowNetwork::kInfinite);
}

// Compares the result with every cut of small random networks.
TEST(MaxFlow, EqualsTheLeastOfAllCuts) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int n = 3 + static_cast<int>(random() % 7);
    struct Arc {
      int from, to;
      int64_t capacity;
    };
    std::vector<Arc> arcs;
    for (unsigned k = random() % 30; k > 0; --k)
      arcs.push_back(
          {static_cast<int>(random() % n), static_cast<int>(random() % n), static_cast<int64_t>(random() % 9)});
    FlowNetwork f(n);
    for (const Arc& a : arcs) f.add_arc(a.from, a.to, a.capacity);
    int64_t least = INT64_MAX;
    for (int sink_side = 0; sink_side < 1 << n; ++sink_side) {
      if ((sink_side & 1) || !(sink_side >> (n - 1) & 1)) continue;
      int64_t cut = 0;
      for (const Arc& a : arcs)
        if (!(sink_side >> a.from & 1) && (sink_side >> a.to & 1)) cut += a.capacity;
      least = std::min(least, cut);
    }
    EXPECT_EQ(f.run(0, n - 1), least);
    int64_t found = 0;
    for (const Arc& a : arcs)
      if (!f.on_sink_side(a.from) && f.on_sink_side(a.to)) found += a.capacity;
    EXPECT_EQ(found, least);
  }
}

TEST(MaxFlow, LongChains) {
  const int n = 200000;
  FlowNetwork f(n);
  for (int i = 0; i + 1 < n; ++i) f.add_arc(i, i + 1, 1 + (i * 7919) % 100 + (i == 77777 ? 0 : 1));
  EXPECT_GE(f.run(0, n - 1), 1);
}

}  // namespace
}  // namespace weft
