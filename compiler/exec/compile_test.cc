// compile(): what programs compute is the same in every way of running them; plans, keys, errors, memory.
#include "compiler/exec/compile.h"

#include <limits>
#include <set>
#include <thread>

#include "compiler/exec/test_programs.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::expect_same_everywhere;
using testing::Program;
using testing::random_tensor;
using testing::same_bits;
using testing::Tensors;

std::vector<Tensors> random_inputs(int steps, const std::vector<Shape>& shapes, uint64_t seed = 1) {
  testing::Random random(seed);
  std::vector<Tensors> all(steps);
  for (Tensors& in : all)
    for (const Shape& s : shapes) in.push_back(random_tensor(kFloat32, s, random));
  return all;
}

Parameter param(const Shape& shape, const std::string& name = "") {
  return Parameter(
      TensorType{kFloat32, {}, shape}, [=] { return randn(shape) * 0.3; }, name);
}

TEST(Compile, MlpTrainsWithTheBitsOfEager) {
  auto make = [] {
    Parameter w1 = param({8, 16}), b1 = param({16}), w2 = param({16, 4});
    std::vector<Parameter> all{w1, b1, w2};
    return Program{{w1, b1, w2}, [=](Tensors in) {
                     Tensor loss = mse_loss(matmul(tanh(matmul(in[0], w1) + b1), w2), in[1]);
                     std::vector<Tensor> g = grad(loss, all);
                     for (size_t i = 0; i < all.size(); ++i) all[i].set(all[i].value() - g[i] * 0.1);
                     return Tensors{loss};
                   }};
  };
  auto r = expect_same_everywhere(make, random_inputs(20, {{5, 8}, {5, 4}}));
  EXPECT_EQ(r.stats.captures, 1);
  EXPECT_EQ(r.stats.calls, 20);
  EXPECT_EQ(r.stats.in_place_writes, 3);
  EXPECT_EQ(r.stats.fresh_writes, 0);
  EXPECT_EQ(r.stats.copies, 0);
}

TEST(Compile, DropoutHasTheSameBits) {
  auto make = [] {
    Parameter w = param({8, 8});
    return Program{{w}, [=](Tensors in) {
                     Tensor y = dropout(matmul(in[0], w), 0.5) + rand({4, 8});
                     Tensor loss = (y * y).mean();
                     w.set(w.value() - grad(loss, std::vector<Parameter>{w})[0]);
                     return Tensors{loss, y};
                   }};
  };
  auto r = expect_same_everywhere(make, random_inputs(4, {{4, 8}}));
  EXPECT_EQ(r.stats.captures, 1);
  EXPECT_FALSE(same_bits(r.outputs[0][1], r.outputs[1][1]));
}

TEST(Compile, CommitIfLeavesCellsAlone) {
  auto make = [] {
    Parameter w = param({6});
    return Program{{w}, [=](Tensors in) {
                     Tensor loss = dropout(w * in[0], 0.3).sum();
                     commit_if(loss > 0.0);
                     w.set(w.value() + in[0]);
                     return Tensors{loss};
                   }};
  };
  expect_same_everywhere(make, random_inputs(6, {{6}}));
}

TEST(Compile, SwapsRotationsAndSharedValues) {
  auto make = [] {
    Parameter a = param({3, 3}), b = param({3, 3}), c = param({3, 3}), d = param({3, 3}), e = param({3, 3});
    return Program{{a, b, c, d, e}, [=](Tensors in) {
                     Tensor x = a, y = b, z = c;
                     a.set(y);
                     b.set(z.transpose(0, 1));
                     c.set(x);
                     Tensor both = in[0] * x;
                     d.set(both);
                     e.set(both);
                     return Tensors{x + y, both};
                   }};
  };
  expect_same_everywhere(make, random_inputs(4, {{3, 3}}));
}

TEST(Compile, OldValuesReadAfterTheNewOneExists) {
  auto make = [] {
    Parameter a = param({4});
    return Program{{a}, [=](Tensors in) {
                     Tensor old = a;
                     a.set(old * in[0]);
                     Tensor now = a;
                     return Tensors{old + now, old, now, old.slice(0, 1, 3), now.reshape({2, 2})};
                   }};
  };
  expect_same_everywhere(make, random_inputs(3, {{4}}));
}

TEST(Compile, ArgumentsAndTheirViewsAsResultsAndCellValues) {
  auto make = [] {
    Parameter a = param({2, 3}), b = param({3, 2});
    return Program{{a, b}, [=](Tensors in) {
                     a.set(in[0]);
                     b.set(in[0].transpose(0, 1));
                     return Tensors{in[0], in[0].slice(0, 0, 1), in[0].transpose(0, 1), in[0]};
                   }};
  };
  auto inputs = random_inputs(3, {{2, 3}});
  auto r = expect_same_everywhere(make, inputs);
  EXPECT_EQ(r.outputs[0][0].impl()->storage.get(), inputs[0][0].impl()->storage.get());
}

TEST(Compile, ViewsSlicesCatAndConstants) {
  auto make = [] {
    Tensor closed = Tensor::from_vector({1, 2, 3, 4}, {4});
    return Program{
        {}, [=](Tensors in) {
          Tensor x = in[0];
          Tensor c = cat({x.slice(0, 1, 3), x.slice(1, 0, 4).t().slice(0, 0, 2)}, 0);
          Tensor m = x.transpose(0, 1) + closed.unsqueeze(1);
          Tensor eye = eq(arange(4).unsqueeze(0), arange(4).unsqueeze(1));
          return Tensors{
              c, m, m.slice(0, 2, 4), where(eye, x, 0.0), c.reshape({-1}), full({2, 2}, 3.5), closed, c.slice(1, 1, 2)};
        }};
  };
  expect_same_everywhere(make, random_inputs(2, {{4, 4}}));
}

TEST(Compile, AnOperandShownInTwoWaysIsNotOverwritten) {
  // Large enough that kernels do not hold the whole operand at once.
  auto make = [] {
    Parameter w = param({200, 200});
    return Program{{w}, [=](Tensors in) {
                     Tensor y = exp(in[0]);
                     w.set(w.value() * 0.5 + w.value().transpose(0, 1));
                     return Tensors{tanh(y + y.transpose(0, 1)),
                                    y.slice(0, 0, 100).reshape({20000}) * 2.0 + y.slice(0, 100, 200).reshape({20000})};
                   }};
  };
  expect_same_everywhere(make, random_inputs(2, {{200, 200}}));
}

TEST(Compile, CheckpointCustomGradAndNoGrad) {
  auto make = [] {
    Parameter w = param({5, 5});
    auto square = custom_grad([](Tensor x) { return x * x; }, [](Tensor x, Tensor, Tensor dy) { return dy * x * 3.0; });
    return Program{{w}, [=](Tensors in) {
                     Tensor h = checkpoint([&](Tensor x) { return tanh(matmul(dropout(x, 0.2), w)); }, in[0]);
                     Tensor y = square(h);
                     Tensor scale;
                     {
                       NoGrad guard;
                       scale = y.amax();
                     }
                     Tensor loss = (y * y / scale).sum();
                     w.set(w.value() - grad(loss, std::vector<Parameter>{w})[0] * 1e-3);
                     return Tensors{loss};
                   }};
  };
  expect_same_everywhere(make, random_inputs(3, {{5, 5}}));
}

TEST(Compile, SecondOrder) {
  auto make = [] {
    Parameter w = param({5, 5});
    return Program{{w}, [=](Tensors in) {
                     Tensor y = tanh(matmul(in[0], w));
                     Tensor loss = (y * y).sum();
                     Tensor g = grad(loss, std::vector<Parameter>{w}, {.create_graph = true})[0];
                     Tensor penalty = (g * g).sum();
                     Tensor gg = grad(penalty, std::vector<Parameter>{w})[0];
                     w.set(w.value() - (g + gg) * 1e-3);
                     return Tensors{loss, penalty};
                   }};
  };
  expect_same_everywhere(make, random_inputs(3, {{5, 5}}));
}

TEST(Compile, StridedArgumentsArePlannedAsTheyLie) {
  int captures = 0;
  auto step = compile([&](Tensor x) {
    ++captures;
    return x * 2.0 + x.sum({0}, true);
  });
  testing::Random random(3);
  Tensor t = random_tensor(kFloat32, {4, 6}, random);
  for (testing::Layout layout : testing::kLayouts) {
    Tensor x = testing::with_layout(t, layout);
    Tensor want = x * 2.0 + x.sum({0}, true);
    EXPECT_TRUE(same_bits(step(x), want)) << testing::name_of(layout);
  }
  EXPECT_EQ(captures, 1);
  EXPECT_EQ(step.stats().captures, 1);
  EXPECT_EQ(step.stats().plans, 4);
}

TEST(Compile, StructuresOfArgumentsAndResults) {
  struct Out {
    Tensor loss;
    std::vector<Tensor> parts;
    std::array<Tensor, 2> pair;
  };
  auto step = compile([](std::vector<Tensor> xs, std::pair<Tensor, Tensor> p) {
    Out o{p.first + p.second, {}, {p.second, xs[0]}};
    for (const Tensor& x : xs) o.parts.push_back(x * 2.0);
    return o;
  });
  Tensor a = Tensor::from_vector({1, 2}, {2}), b = Tensor::from_vector({3, 5}, {2});
  Out o = step(std::vector<Tensor>{a, b, a}, std::pair<Tensor, Tensor>{a, b});
  EXPECT_EQ(o.loss.to_vector<float>(), (std::vector<float>{4, 7}));
  ASSERT_EQ(o.parts.size(), 3u);
  EXPECT_EQ(o.parts[1].to_vector<float>(), (std::vector<float>{6, 10}));
  EXPECT_EQ(o.pair[0].to_vector<float>(), (std::vector<float>{3, 5}));
  Out again = step(std::vector<Tensor>{a, b}, std::pair<Tensor, Tensor>{a, b});
  EXPECT_EQ(again.parts.size(), 2u);
  EXPECT_EQ(step.stats().captures, 2);
  // The same number of tensors in another structure is another program.
  auto two = compile(
      [](std::vector<Tensor> x, std::vector<Tensor> y) { return x.size() > y.size() ? x[0] + 1.0 : y[0] - 1.0; });
  EXPECT_EQ(two(Tensors{a, a}, Tensors{a}).to_vector<float>(), (std::vector<float>{2, 3}));
  EXPECT_EQ(two(Tensors{a}, Tensors{a, a}).to_vector<float>(), (std::vector<float>{0, 1}));
}

TEST(Compile, NoArgumentsNoResultAndCellsAsArguments) {
  Buffer n(Tensor::from_vector<int64_t>({0}, {}));
  auto count = compile([&] { n.set(n.value() + 1); });
  for (int i = 0; i < 5; ++i) count();
  EXPECT_EQ(n.value().item<int64_t>(), 5);
  Parameter p(Tensor::from_vector({1, 2}, {2}));
  auto twice = compile([](Tensor x) { return x * 2.0; });
  EXPECT_EQ(twice(p).to_vector<float>(), (std::vector<float>{2, 4}));
}

TEST(Compile, NewShapesCaptureAgainAndPlansAreBounded) {
  int captures = 0;
  auto step = compile([&](Tensor x) {
    ++captures;
    return x * x + 1.0;
  });
  for (int round = 0; round < 2; ++round)
    for (int64_t n = 1; n <= 20; ++n) EXPECT_EQ(step(full({n}, 3.0)).to_vector<float>(), std::vector<float>(n, 10));
  EXPECT_EQ(captures, 20);
  for (int64_t n = 21; n <= 40; ++n) step(full({n}, 3.0));
  EXPECT_EQ(step.stats().plans_kept, 32);
  step(full({40}, 3.0));
  EXPECT_EQ(captures, 40);
  step(full({1}, 3.0));  // the least recently used went first
  EXPECT_EQ(captures, 41);
  EXPECT_EQ(step.stats().captures, 41);
}

TEST(Compile, HostFlagsGradModeAndCellTypesArePartOfTheKey) {
  HostFlag train(true);
  Parameter w(Tensor::from_vector({1, 2}, {2}));
  int captures = 0;
  auto step = compile([&](Tensor x) {
    ++captures;
    return train.get() ? x * w : x + w;
  });
  Tensor x = Tensor::from_vector({3, 4}, {2});
  EXPECT_EQ(step(x).to_vector<float>(), (std::vector<float>{3, 8}));
  train.set(false);
  EXPECT_EQ(step(x).to_vector<float>(), (std::vector<float>{4, 6}));
  train.set(true);
  EXPECT_EQ(step(x).to_vector<float>(), (std::vector<float>{3, 8}));
  EXPECT_EQ(captures, 2);
  {
    NoGrad guard;
    step(x);
    EXPECT_EQ(captures, 3);
  }
  w.requires_grad(false);
  step(x);
  EXPECT_EQ(captures, 4);
  w.convert(kFloat64);
  EXPECT_EQ(step(x).dtype(), kFloat64);
  EXPECT_EQ(captures, 5);
}

TEST(Compile, PlansOutliveTheOwnerOfAFlagTheyRead) {
  struct Layer {  // what a module is to compile(): a flag and a cell
    HostFlag training{true};
    Parameter w{Tensor::from_vector({2}, {})};
    Tensor operator()(const Tensor& x) const { return training.get() ? x * w : x + w; }
  };
  std::unique_ptr<Layer> layer = std::make_unique<Layer>();
  int captures = 0;
  auto step = compile([&](Tensor x) {
    ++captures;
    return (*layer)(x);
  });
  Tensor one = Tensor::from_vector({3}, {1}), two = Tensor::from_vector({3, 4}, {2});
  EXPECT_EQ(step(one).to_vector<float>(), (std::vector<float>{6}));
  layer = std::make_unique<Layer>();
  EXPECT_EQ(step(two).to_vector<float>(), (std::vector<float>{6, 8}));  // asks the first plan too
  EXPECT_EQ(step(one).to_vector<float>(), (std::vector<float>{6}));
  EXPECT_EQ(captures, 2);
  HostFlag flag(true), alias = flag;
  alias.set(false);
  EXPECT_FALSE(flag.peek());
}

TEST(Compile, OtherHolderOfACellKeepsTheOldValue) {
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

TEST(Compile, MemoryFromOutsideIsNeverWritten) {
  float data[2] = {1, 2};
  Parameter w(Tensor::from_blob(data, {2}, kFloat32));
  auto step = compile([&] { w.set(w.value() * 2.0); });
  step();
  step();
  EXPECT_EQ(data[0], 1);
  EXPECT_EQ(w.value().to_vector<float>(), (std::vector<float>{4, 8}));
}

TEST(Compile, ResultsStayWhileHeldAndAreReusedAfter) {
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

TEST(Compile, ReplayAllocatesNothing) {
  Parameter w1 = param({16, 32}), w2 = param({32, 8});
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

TEST(Compile, PredictedPeakIsWhatTheAllocatorSees) {
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

TEST(Compile, MemoryBudgetIsAHardLimit) {
  auto fn = [](Tensor x) { return matmul(x, x).sum(); };
  auto step = compile(fn);
  Tensor x = ones({64, 64});
  step(x);
  const int64_t peak = step.stats().planned_peak_bytes;
  auto fits = compile(fn, {.memory_budget = peak});
  EXPECT_EQ(fits(x).item<float>(), step(x).item<float>());
  auto tight = compile(fn, {.memory_budget = peak - 1});
  const int64_t live = memory_stats().live;
  EXPECT_EQ(error_of([&] { tight(x); }).find(cat("compile: the step needs ", peak, " bytes at its peak")), 0u);
  EXPECT_EQ(memory_stats().live, live);
  EXPECT_NE(error_of([&] { compile(fn, {.memory_budget = -1}); }).find("memory_budget"), std::string::npos);
  EXPECT_NE(error_of([&] { compile(fn, {.numerics = "exact"}); }).find("need fast or eager"), std::string::npos);
  auto unknown = compile(fn, {.disable = {"no_such_pass"}});
  EXPECT_NE(error_of([&] { unknown(x); }).find("no_such_pass"), std::string::npos);
}

TEST(Compile, ReadingAValueInCaptureNamesTheLine) {
  auto step = compile([](Tensor x) { return x * x.sum().item<float>(); });
  std::string e = error_of([&] { step(ones({3})); });
  EXPECT_NE(e.find(cat("compile_test.cc:", __LINE__ - 2)), std::string::npos) << e;
  EXPECT_NE(e.find("inside capture"), std::string::npos) << e;
  // The failed capture leaves nothing behind.
  EXPECT_FALSE(is_capturing());
  EXPECT_EQ((ones({1}) + 1.0).item<float>(), 2);
}

TEST(Compile, ErrorsOfKernelsNameTheLineAndChangeNothingBeforeTheFirstWrite) {
  Parameter w(ones({4, 2}));
  auto step = compile([&](Tensor index) {
    Tensor rows = embedding(index, w);
    w.set(w.value() + rows.sum());
    return rows;
  });
  Tensor good = Tensor::from_vector<int64_t>({0, 3}, {2}), bad = Tensor::from_vector<int64_t>({0, 4}, {2});
  step(good);
  std::vector<float> before = w.value().to_vector<float>();
  std::string e = error_of([&] { step(bad); });
  EXPECT_NE(e.find("compile_test.cc:"), std::string::npos) << e;
  EXPECT_NE(e.find("4"), std::string::npos) << e;
  EXPECT_EQ(w.value().to_vector<float>(), before);
  step(good);
}

TEST(Compile, AStepThatFailsHalfWayTearsItsCells) {
  Parameter w(ones({4}));
  auto step = compile([&](Tensor index) {
    w.set(w.value() + 1.0);
    return index_select(w.value(), 0, index);
  });
  Tensor good = Tensor::from_vector<int64_t>({0}, {1}), bad = Tensor::from_vector<int64_t>({9}, {1});
  EXPECT_EQ(step(good).item<float>(), 2);
  EXPECT_NE(error_of([&] { step(bad); }).find("load a checkpoint"), std::string::npos);
  EXPECT_NE(error_of([&] { w.value(); }).find("torn"), std::string::npos);
  EXPECT_NE(error_of([&] { step(good); }).find("torn"), std::string::npos);
  w.set(zeros({4}));
  EXPECT_EQ(step(good).item<float>(), 1);
  // With another holder the failed step wrote elsewhere: nothing is lost.
  Tensor held = w.value();
  EXPECT_EQ(error_of([&] { step(bad); }).find("load a checkpoint"), std::string::npos);
  EXPECT_EQ(w.value().to_vector<float>(), std::vector<float>(4, 1));
}

TEST(Compile, OneCallAtATime) {
  struct Holder {
    std::function<void()> again;
  };
  auto h = std::make_shared<Holder>();
  auto step = compile([h](Tensor x) {
    if (h->again) h->again();
    return x + 1.0;
  });
  Tensor x = ones({2});
  std::string inner;
  h->again = [&] { std::thread([&] { inner = error_of([&] { step(x); }); }).join(); };
  step(x);
  EXPECT_NE(inner.find("already running"), std::string::npos) << inner;
  h->again = [&] { inner = error_of([&] { step(ones({3})); }); };
  step(ones({5}));  // in itself
  EXPECT_NE(inner.find("already running"), std::string::npos) << inner;
  h->again = {};
  EXPECT_EQ(step(x).to_vector<float>(), (std::vector<float>{2, 2}));
  std::vector<std::thread> threads;  // one compiled function per thread is fine
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      auto own = compile([](Tensor x) { return x * 2.0; });
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(own(full({3}, t + 1.0)).to_vector<float>(), std::vector<float>(3, 2.0f * (t + 1)));
    });
  for (std::thread& t : threads) t.join();
}

TEST(Compile, InsideCaptureTheCallIsInlined) {
  auto inner = compile([](Tensor x) { return dropout(x, 0.5) + 1.0; });
  auto make = [&] { return Program{{}, [&](Tensors in) { return Tensors{inner(in[0]) * 2.0, inner(in[0])}; }}; };
  expect_same_everywhere(make, random_inputs(3, {{16}}));
  EXPECT_EQ(inner.stats().captures, 0);
}

TEST(Compile, UndefinedAndLeakedTensorsAreErrors) {
  auto step = compile([](Tensor x) { return x; });
  EXPECT_NE(error_of([&] { step(Tensor()); }).find("argument 0 is an undefined tensor"), std::string::npos);
  auto none = compile([](Tensor) { return Tensor(); });
  EXPECT_NE(error_of([&] { none(ones({1})); }).find("result 0"), std::string::npos);
  Tensor leaked;
  auto leak = compile([&](Tensor x) {
    leaked = x;
    return x;
  });
  leak(ones({1}));
  EXPECT_NE(error_of([&] { step(leaked); }).find("traced by a capture that has ended"), std::string::npos);
}

TEST(Compile, MetaIsPlannedWithoutMemory) {
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

TEST(Compile, FirstNonfiniteNamesOpAndLine) {
  Parameter w(Tensor::from_vector({1, -1}, {2}));
  auto step = compile([&](Tensor x) {
    Tensor masked = where(x > 0.0, x, -std::numeric_limits<double>::infinity());  // allowed
    Tensor p = softmax(masked, 0);
    Tensor bad = log(w * x);
    w.set(w.value() + bad);
    return (bad + p).sum();
  });
  Tensor x = Tensor::from_vector({1, 2}, {2});
  std::string e = step.first_nonfinite(x);
  EXPECT_NE(e.find("NaN first at [1] of the result of log"), std::string::npos) << e;
  EXPECT_NE(e.find(cat("compile_test.cc:", __LINE__ - 7)), std::string::npos) << e;
  EXPECT_EQ(w.value().to_vector<float>(), (std::vector<float>{1, -1}));
  e = step.first_nonfinite(Tensor::from_vector({1, -2}, {2}));
  EXPECT_NE(e.find("no op"), std::string::npos) << e;
}

TEST(Compile, ReportAndGraphs) {
  Parameter w(ones({4}), "scale");
  auto step = compile([&](Tensor x) {
    Tensor y = x * w * 2.5;
    w.set(w.value() * 0.5);
    return y;
  });
  EXPECT_NE(error_of([&] { step.report(); }).find("not been captured"), std::string::npos);
  step(ones({4}));
  const std::string r = step.report();
  for (const char* part : {"2.5 at ", "compile_test.cc", "mul", "peak ", "FLOPs", "passes", "not done"})
    EXPECT_NE(r.find(part), std::string::npos) << part << "\n" << r;
  EXPECT_EQ(step.graph("captured").stage, "captured");
  EXPECT_EQ(step.graph("joint").stage, "joint");
  EXPECT_EQ(step.graph("scheduled").stage, "scheduled");
  EXPECT_NE(error_of([&] { step.graph("fuse"); }).find("need captured, joint, fused or scheduled"), std::string::npos);
}

TEST(Compile, DebugPrintRunsEachStep) {
  auto step = compile([](Tensor x) {
    debug_print(x.sum(), "first");
    return debug_print(x * 2.0, "second");
  });
  ::testing::internal::CaptureStderr();
  step(ones({2}));
  step(ones({2}));
  const std::string text = ::testing::internal::GetCapturedStderr();
  size_t at = 0;
  for (const char* word : {"first", "second", "first", "second"}) {
    at = text.find(word, at);
    ASSERT_NE(at, std::string::npos) << text;
  }
}

TEST(Compile, VerifyFindsAWrongKernel) {
  // An op whose kernel gives another result at each run.
  static int runs = 0;
  static const OpDef unsteady = {.name = "unsteady",
                                 .infer = [](const InferCall& c) { return Types{c.in[0]}; },
                                 .kernel =
                                     [](const KernelCall& c) {
                                       for (int64_t i = 0; i < c.out[0].numel(); ++i) c.out[0].as<float>()[i] = 0;
                                       c.out[0].as<float>()[2] = static_cast<float>(runs++);
                                     }};
  auto step = compile([&](Tensor x) { return dispatch(unsteady, {&x}); }, {.verify = true});
  std::string e = error_of([&] { step(ones({2, 2})); });
  EXPECT_NE(e.find("verify: output 0 differs from the reference first at [1, 0]: got 1; need 0"), std::string::npos)
      << e;
}

}  // namespace
}  // namespace weft
