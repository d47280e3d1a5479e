// compile(): memory that others hold is not written, replays allocate nothing, peaks are predicted, budgets are kept.
#include <gtest/gtest.h>

#include <set>

#include "compiler/exec/partitioned.h"
#include "compiler/exec/testing/test_programs.h"
#include "compiler/targets/operations.h"
#include "framework/autodiff/grad.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::random_parameter;
using testing::random_tensor;

TEST(CompileMemory, OtherHolderOfACellKeepsTheOldValue) {
  Parameter w(Tensor::from_vector({1, 2}, {2}));
  auto step = compile([&] { w.set(w.value() * 2.0); });
  step();
  EXPECT_EQ(step.stats().in_place_writes, 1);
  Tensor held = w.value(), held_detached = w.value().detach();
  const void* address = w.cell().value.view_for_kernel().data;
  step();
  EXPECT_EQ(step.stats().fresh_writes, 1);
  EXPECT_EQ(step.stats().planned_peak_bytes, step.stats().measured_peak_bytes);
  EXPECT_NE(address, w.cell().value.view_for_kernel().data);
  EXPECT_EQ(held.to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(held_detached.to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(w.value().to_vector<float>(), (std::vector<float>{4, 8}));
  held = held_detached = Tensor();
  step();
  EXPECT_EQ(step.stats().in_place_writes, 1);
  Parameter other = w.clone();  // shares memory until one of them is written
  step();
  EXPECT_EQ(other.value().to_vector<float>(), (std::vector<float>{8, 16}));
  EXPECT_EQ(w.value().to_vector<float>(), (std::vector<float>{16, 32}));
  // The buffer's handle, taken without a tape link, is the cell's own handle.
  Buffer b(Tensor::from_vector({1}, {1}));
  auto add = compile([&] { b.set(b.value() + 1.0); });
  Tensor before = b;
  add();
  EXPECT_EQ(before.item<float>(), 1);
  EXPECT_EQ(b.value().item<float>(), 2);
}

TEST(CompileMemory, MemoryFromOutsideIsNeverWritten) {
  float data[2] = {1, 2};
  Parameter w(Tensor::from_blob(data, {2}, kFloat32));
  auto step = compile([&] { w.set(w.value() * 2.0); });
  step();
  step();
  EXPECT_EQ(data[0], 1);
  EXPECT_EQ(w.value().to_vector<float>(), (std::vector<float>{4, 8}));
}

TEST(CompileMemory, ResultsStayWhileHeldAndAreReusedAfter) {
  auto step = compile([](Tensor x) { return x + 1.0; });
  std::vector<Tensor> kept;
  for (int i = 0; i < 5; ++i) kept.push_back(step(full({100}, static_cast<double>(i))));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(kept[i].to_vector<float>(), std::vector<float>(100, i + 1.0f));
  const void* p = kept.back().data<float>();
  kept.clear();
  Tensor x = full({100}, 1.0);
  std::set<const void*> addresses;
  for (int i = 0; i < 10; ++i) addresses.insert(step(x).data<float>());
  EXPECT_LE(addresses.size(), 2u);
  static_cast<void>(p);
}

TEST(CompileMemory, ReplayAllocatesNothing) {
  Parameter w1 = random_parameter({16, 32}), w2 = random_parameter({32, 8});
  auto step = compile([&](Tensor x) {
    Tensor loss = mse_loss(matmul(dropout(relu(matmul(x, w1)), 0.1), w2), x.slice(1, 0, 8));
    std::vector<Tensor> g = grad(loss, std::vector<Parameter>{w1, w2});
    w1.set(w1.value() - g[0] * 0.1);
    w2.set(w2.value() - g[1] * 0.1);
    return std::pair<Tensor, Tensor>{loss, g[0]};
  });
  testing::Random random(1);
  Tensor x = random_tensor(kFloat32, {6, 16}, random);
  std::pair<Tensor, Tensor> r;
  for (int i = 0; i < 3; ++i) r = step(x);
  const MemoryStats before = memory_stats();
  for (int i = 0; i < 10; ++i) r = step(x);
  EXPECT_EQ(memory_stats().allocations, before.allocations);
  EXPECT_EQ(memory_stats().live, before.live);
}

TEST(CompileMemory, PredictedPeakIsWhatTheAllocatorSees) {
  testing::Random random(1);
  Tensor x = random_tensor(kFloat32, {32, 64}, random);
  static_cast<void>(default_generator().seed.value());
  const int64_t before = memory_stats().live;
  Parameter w1(TensorType{kFloat32, {}, {64, 100}}, [] { return full({64, 100}, 0.01); });
  Parameter w2(TensorType{kFloat32, {}, {100, 3}}, [] { return full({100, 3}, 0.01); });
  auto step = compile([&](Tensor x) {
    Tensor loss = matmul(tanh(matmul(x, w1)), w2).square().mean();
    std::vector<Tensor> g = grad(loss, std::vector<Parameter>{w1, w2});
    w1.set(w1.value() - g[0]);
    w2.set(w2.value() - g[1]);
    return loss;
  });
  step(x);  // cells are made here, with memory of their own
  Allocator::of(Device::cpu()).reset_peak();
  step(x);
  const CompileStats s = step.stats();
  EXPECT_EQ(s.planned_peak_bytes, s.measured_peak_bytes);
  EXPECT_EQ(memory_stats().peak - before, s.planned_peak_bytes);
}

// The sum over both dims takes broadcast operands as a sum over one dim does: the product would need 16 MB.
TEST(CompileMemory, AFullReductionStoresNoProductOfBroadcastOperands) {
  auto step = compile([](Tensor a, Tensor b) { return (a * b).sum(); });
  EXPECT_EQ(step(ones({2048, 1}), ones({1, 2048})).item<float>(), 2048 * 2048);
  EXPECT_LT(step.stats().planned_peak_bytes, 128 << 10);
}

TEST(CompileMemory, MemoryBudgetIsAHardLimit) {
  auto fn = [](Tensor x) { return matmul(x, x).sum(); };
  auto step = compile(fn);
  Tensor x = ones({64, 64});
  step(x);
  const int64_t peak = step.stats().planned_peak_bytes;
  auto fits = compile(fn, {.memory_budget = peak});
  EXPECT_EQ(fits(x).item<float>(), step(x).item<float>());
  auto tight = compile(fn, {.memory_budget = peak - 1});
  const int64_t live = memory_stats().live;
  for (int call = 0; call < 2; ++call)
    EXPECT_EQ(error_of([&] { tight(x); }).find(str_cat("compile: the step needs ", peak, " bytes at its peak")), 0u);
  EXPECT_EQ(tight.stats().captures, 1);
  EXPECT_EQ(memory_stats().live, live);
  EXPECT_NE(error_of([&] { compile(fn, {.memory_budget = -1}); }).find("memory_budget"), std::string::npos);
  EXPECT_NE(error_of([&] { compile(fn, {.numerics = "exact"}); }).find("need fast or eager"), std::string::npos);
  EXPECT_NE(error_of([&] { compile(fn, {.disable = {"no_such_pass"}}); }).find("no_such_pass"), std::string::npos);
}

// Memory or disk space may be there at the next call.
TEST(CompileMemory, OtherErrorsOfResourcesAreNotKept) {
  static int plans = 0;
  CompileOptions options{.memory_budget = int64_t{1} << 40};
  options.partitioner = [](const Ref<Graph>&, const CompileOptions&) -> std::unique_ptr<internal::PartitionedStep> {
    throw Error(Code::kResourceExhausted, str_cat("no space left, plan ", ++plans));
  };
  auto step = compile([](Tensor x) { return x * 2.0; }, options);
  EXPECT_EQ(error_of([&] { step(ones({2})); }), "no space left, plan 1");
  EXPECT_EQ(error_of([&] { step(ones({2})); }), "no space left, plan 2");
  EXPECT_EQ(step.stats().plans_kept, 0);
}

TEST(CompileMemory, StepsOfManyShapesLeaveFewOperations) {
  const int64_t before = internal::operation_counts().kept;
  {
    auto step = compile([](Tensor x) { return tanh(x * 2.0 + 1.0); });
    for (int64_t n = 1; n <= 1200; ++n) step(ones({n, 3}));
  }
  EXPECT_LT(internal::operation_counts().kept - before, 700);
}

TEST(CompileMemory, MetaIsPlannedWithoutMemory) {
  const Device meta = Device::meta();
  Parameter w(TensorType{kFloat32, meta, {1 << 20, 1 << 14}}, [=] {
    return zeros({1 << 20, 1 << 14}, {.device = meta});
  });
  auto step = compile([&](Tensor x) {
    Tensor y = matmul(x, w).sum();
    w.set(w.value() * 0.5);
    return y;
  });
  Tensor y = step(Tensor::empty({kFloat32, meta, {8, 1 << 20}}));
  EXPECT_EQ(y.device(), meta);
  EXPECT_GE(step.stats().planned_peak_bytes, int64_t{1} << 36);
}

}  // namespace
}  // namespace weft
