// Arena placement, orders of execution, and the places of values in a plan.
#include "compiler/exec/plan/plan.h"

#include "compiler/exec/plan/order.h"
#include "compiler/exec/run/arena.h"
#include "compiler/exec/testing/test_programs.h"
#include "framework/dispatch/capture.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::internal {
namespace {

using testing::Random;

TEST(Arena, NoTwoLiveIntervalsOverlapAndLittleIsWasted) {
  Random r(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<Interval> all;
    for (int i = 0; i < 60; ++i) {
      const int32_t first = static_cast<int32_t>(r.bits() % 100);
      all.push_back(
          {static_cast<int64_t>(1 + r.bits() % 50) * 64, first, first + static_cast<int32_t>(r.bits() % 20), 0});
    }
    const int64_t size = place_intervals(all);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].offset % 64, 0);
      EXPECT_LE(all[i].offset + all[i].bytes, size);
      for (size_t j = 0; j < i; ++j) {
        const bool time = all[i].first <= all[j].last && all[j].first <= all[i].last;
        const bool memory =
            all[i].offset < all[j].offset + all[j].bytes && all[j].offset < all[i].offset + all[i].bytes;
        EXPECT_FALSE(time && memory);
      }
    }
    EXPECT_GE(size, most_live(all));
    EXPECT_LE(size, most_live(all) * 3 / 2);
  }
  EXPECT_EQ(place_intervals({}), 0);
}

MemoryLayout make_plan(Ref<Graph> graph, std::span<const ArgumentLayout> arguments) {
  Operations operations(target_of(DeviceType::kCpu, "test"), {}, {});
  MemoryLayout plan = draft_plan(std::move(graph), arguments, operations);
  lay_out(plan);
  return plan;
}

MemoryLayout plan_of(const TensorFn& fn, std::vector<TensorType> types) {
  Ref<Graph> g = capture_graph(fn, types);
  std::vector<ArgumentLayout> layouts;
  for (const TensorType& t : types) layouts.push_back({contiguous_strides(t.shape)});
  return make_plan(reorder(*g, insertion_order(*g)), layouts);
}
const TensorType kVec{kFloat32, {}, {1024}};

TEST(Plan, AChainRunsInOneBlock) {
  MemoryLayout p = plan_of([](auto in) { return std::vector<Tensor>{tanh(exp(neg(in[0])) * 2.0)}; }, {kVec});
  EXPECT_EQ(p.launches.size(), 4u);
  EXPECT_EQ(p.arena_bytes, 0);  // even the first value is in the output block
  EXPECT_EQ(p.output_blocks, std::vector<int64_t>{4096});
  EXPECT_EQ(p.setup.size(), 1u);
}

TEST(Plan, ViewsAliasAndKeepTheirBaseAlive) {
  MemoryLayout p = plan_of(
      [](auto in) {
        Tensor base = exp(in[0]);
        Tensor view = base.reshape({32, 32}).transpose(0, 1);
        Tensor other = exp(base.slice(0, 0, 512));  // may not overwrite base: view is read later
        return std::vector<Tensor>{view.sum({0}) + 0.0, other.sum()};
      },
      {kVec});
  for (const Launch& l : p.launches) EXPECT_FALSE(l.copy);
  EXPECT_GE(p.arena_bytes, 4096 + 2048);
}

TEST(Plan, UpdatesAreComputedInTheirCell) {
  Parameter w(ones({1024}));
  MemoryLayout p = plan_of(
      [&](auto in) {
        w.set(w.value() - in[0] * 0.1);
        return std::vector<Tensor>{};
      },
      {kVec});
  ASSERT_EQ(p.launches.size(), 2u);
  EXPECT_TRUE(p.cells[0].direct);
  EXPECT_EQ(p.peak_bytes(), 4096 + 4096 + 64);
}

TEST(Plan, ACacheIsWrittenInPlace) {
  Buffer cache(zeros({8, 1024}));
  MemoryLayout p = plan_of(
      [&](auto in) {
        cache.set(dynamic_update_slice(cache, in[0].reshape({1, 1024}), {Tensor(in[1]), 0}));
        return std::vector<Tensor>{cache.value().sum()};
      },
      {kVec, TensorType{kInt64, {}, {}}});
  EXPECT_TRUE(p.cells[0].direct);
  for (const Launch& l : p.launches) EXPECT_FALSE(l.copy);
  EXPECT_LE(p.arena_bytes, 1024);  // the reduction's scratch at most
}

TEST(Plan, AValueReadLaterIsCopiedAtTheEnd) {
  Parameter w(ones({1024}));
  MemoryLayout p = plan_of(
      [&](auto in) {
        Tensor old = w;
        w.set(old - in[0]);
        return std::vector<Tensor>{(old * in[0]).sum()};
      },
      {kVec});
  EXPECT_FALSE(p.cells[0].direct);
  EXPECT_TRUE(p.launches.back().copy);
}

TEST(Order, FrugalOrderNeedsLessAndChangesNoResult) {
  // All gradients first, updates after: the updates can run as soon as their gradient exists.
  auto fn = [](auto in) {
    std::vector<Tensor> wide, out;
    for (int i = 0; i < 8; ++i) wide.push_back(exp(in[0] * (i + 1.0)));
    for (const Tensor& t : wide) out.push_back(t.sum());
    return out;
  };
  const std::vector<TensorType> types{kVec};
  Ref<Graph> g = capture_graph(fn, types);
  const ArgumentLayout layout{contiguous_strides(kVec.shape)};
  MemoryLayout a = make_plan(reorder(*g, insertion_order(*g)), {&layout, 1});
  MemoryLayout b = make_plan(reorder(*g, frugal_order(*g)), {&layout, 1});
  EXPECT_LT(b.arena_bytes * 4, a.arena_bytes);
  EXPECT_EQ(a.launches.size(), b.launches.size());
}

}  // namespace
}  // namespace weft::internal
