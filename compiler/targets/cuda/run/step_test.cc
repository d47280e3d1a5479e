// Compiled steps on a fake GPU that runs the CPU's kernels: the same bits, memory as planned, replays of one graph.
#include <gtest/gtest.h>

#include "compiler/exec/compile.h"
#include "compiler/exec/testing/test_programs.h"
#include "compiler/targets/cuda/testing/host_kernels_gpu.h"
#include "framework/autodiff/grad.h"
#include "framework/base/switches.h"
#include "framework/cuda/gpu.h"
#include "framework/dispatch/device/host_read.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/state/generator.h"
#include "framework/testing/compare.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/reductions/reduce.h"

namespace weft::internal {
namespace {

using testing::error_of;
using Calls = std::map<std::string, int>;

// A linear model trained with momentum and dropout.
struct Model {
  explicit Model(Device d, const CompileOptions& options = {}) : device(d) {
    manual_seed(3);
    w = Parameter(
        TensorType{.shape = {8, 4}},
        [] {
          return normal({8, 4}, 0, 0.5);
        },
        "w");
    m = Buffer(
        TensorType{.shape = {8, 4}},
        [] {
          return zeros({8, 4});
        },
        "m");
    w.convert(d);
    m.convert(d);
    step = std::make_unique<Compiled<std::function<Tensor(Tensor)>>>(
        std::function<Tensor(Tensor)>([this](Tensor x) { return train(x); }), options);
  }
  Tensor train(const Tensor& x) {
    const Tensor kept = rand(x.shape(), {.device = x.device()}) < 0.75;
    const Tensor y = matmul(where(kept, x, 0.0), w);
    const Tensor loss = mean(square(tanh(y) - 0.25));
    const Tensor g = grad(loss, std::vector<Tensor>{w.value()})[0];
    NoGrad guard;
    commit_if(isfinite(loss));
    m.set(m.value() * 0.9 + g);
    w.set(w.value() - m.value() * 0.1);
    return loss;
  }
  Tensor input(int i) const {
    std::vector<float> v;
    for (int k = 0; k < 48; ++k) v.push_back(static_cast<float>((k * 7 + i * 5) % 11) / 4 - 1);
    return Tensor::from_vector(v, {6, 8}).to(device);
  }

  Device device;
  Parameter w;
  Buffer m;
  std::unique_ptr<Compiled<std::function<Tensor(Tensor)>>> step;
};

struct GpuStep : ::testing::Test {
  GpuStep() { set_switch("WEFT_CXX", "none"); }  // interpreted: faster for so little data
  HostKernelsGpu gpu;
  const Device cuda = Device::cuda();
};

TEST_F(GpuStep, Pointwise) {
  auto f = compile([](const Tensor& x) { return exp(x) * 2 + 1; });
  const Tensor x = Tensor::from_vector({0, 1, 2, 3}, {4});
  const std::vector<float> want = f(x).to_vector<float>();
  for (int i = 0; i < 4; ++i) {
    const Tensor y = f(x.to(cuda));
    EXPECT_EQ(y.device(), cuda);
    EXPECT_EQ(y.to_vector<float>(), want) << i;
  }
}

// A filled tensor has storage for all its elements, on each device.
TEST_F(GpuStep, FilledTensorsAreWhole) {
  const std::function<std::vector<Tensor>(const Tensor&)> f = [](const Tensor& x) {
    return std::vector<Tensor>{zeros_like(x), full(x.shape(), 2, {.device = x.device()}), zeros_like(x) + 1,
                               zeros_like(x).transpose(0, 1)};
  };
  auto step = compile(f);
  const Tensor x = Tensor::from_vector({0, 1, 2, 3, 4, 5}, {2, 3});
  for (const auto& made : {std::pair{f(x), f(x.to(cuda))}, std::pair{step(x), step(x.to(cuda))}})
    for (size_t i = 0; i < made.first.size(); ++i) {
      EXPECT_EQ(made.second[i].strides(), made.first[i].strides()) << i;
      EXPECT_EQ(made.second[i].to_vector<float>(), made.first[i].to_vector<float>()) << i;
    }
  EXPECT_TRUE(zeros_like(x.to(cuda)).is_contiguous());
}

// Operands that are not 16-byte aligned are copied, and kernels read the copies.
TEST_F(GpuStep, ArgumentsMayBeginAnywhere) {
  Parameter w(Tensor::from_vector({1, 2, 3, 4, 5, 6, 7, 8, 9}, {9}).to(cuda).slice(0, 1, 9));
  const Tensor constant = Tensor::from_vector({5, 4, 3, 2, 1, 0, 1, 2, 3}, {9}).to(cuda).slice(0, 1, 9);
  auto step = compile([&](const Tensor& x) {
    w.set(w.value() + x);
    return std::vector<Tensor>{x * constant, x};
  });
  const Tensor all = Tensor::from_vector({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {13}).to(cuda);
  for (int i = 0; i < 5; ++i) {
    const Tensor x = all.slice(0, i, i + 8);
    const std::vector<Tensor> y = step(x);
    std::vector<float> want, same;
    for (int k = 0; k < 8; ++k) {
      same.push_back(static_cast<float>(i + k));
      want.push_back(static_cast<float>((i + k) * std::abs(4 - k)));
    }
    EXPECT_EQ(y[0].to_vector<float>(), want) << i;
    EXPECT_EQ(y[1].to_vector<float>(), same) << i;
  }
  // Every other column of a table, starting at the second.
  auto twice = compile([](const Tensor& x) { return x * 2; });
  const Tensor table = Tensor::from_vector({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 6}).to(cuda);
  EXPECT_EQ(twice(table.slice(1, 1, 6, 2)).to_vector<float>(), (std::vector<float>{2, 6, 10, 14, 18, 22}));
  EXPECT_EQ(w.value().to_vector<float>(), (std::vector<float>{12, 18, 24, 30, 36, 42, 48, 54}));
}

TEST_F(GpuStep, TrainsWithTheBitsOfTheCpu) {
  std::vector<float> want, weights;
  {
    Model cpu(Device::cpu());
    for (int i = 0; i < 5; ++i) want.push_back((*cpu.step)(cpu.input(i)).item<float>());
    weights = cpu.w.value().to_vector<float>();
  }
  for (const bool graph : {true, false}) {
    Model on(cuda, {.cuda_graph = graph});
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ((*on.step)(on.input(i)).item<float>(), want[i]) << i;
      const CompileStats s = on.step->stats();
      EXPECT_EQ(s.measured_peak_bytes, s.planned_peak_bytes) << i;
      EXPECT_GT(s.in_place_writes, 0);
      EXPECT_EQ(s.fresh_writes, i == 0 ? s.fresh_writes : 0) << i;
    }
    EXPECT_EQ(on.w.value().to_vector<float>(), weights) << graph;
  }
}

TEST_F(GpuStep, OneLaunchAReplay) {
  Model on(cuda);
  const Tensor x = on.input(0);
  for (int i = 0; i < 3; ++i) (*on.step)(x);
  gpu.take_calls();
  (*on.step)(x);
  EXPECT_EQ(gpu.take_calls(), (Calls{{"cuGraphLaunch", 1}}));
  EXPECT_EQ(gpu.driver().pending() > 0, true);  // nothing waited
}

TEST_F(GpuStep, ReadsWaitForTheirOwnStepAlone) {
  Model on(cuda), same(cuda);
  const Tensor x = on.input(0);
  std::vector<float> want, got;
  manual_seed(9);
  for (int i = 0; i < 8; ++i) want.push_back((*same.step)(x).item<float>());
  manual_seed(9);
  HostRead last;
  for (int i = 0; i < 8; ++i) {
    HostRead now({(*on.step)(x)});  // the loss is released: each step stores it at the same address
    if (i == 4) gpu.take_calls();
    if (i > 0) got.push_back(last.wait()[0].item<float>());
    if (i > 0) {
      EXPECT_FALSE(now.ready()) << i;
    }
    last = std::move(now);
  }
  const Calls calls = gpu.take_calls();
  EXPECT_EQ(
      calls,
      (Calls{{"cuGraphLaunch", 3}, {"cuMemcpyDtoHAsync_v2", 3}, {"cuEventRecord", 3}, {"cuEventSynchronize", 4}}));
  got.push_back(last.wait()[0].item<float>());
  EXPECT_TRUE(last.ready());
  EXPECT_EQ(got, want);
  EXPECT_EQ(HostRead({zeros({2})}).wait()[0].to_vector<float>(), (std::vector<float>{0, 0}));
  EXPECT_EQ(testing::placed_error_of([] { HostRead({Tensor()}); }),
            str_cat("HostRead: value 0 is an undefined tensor; need one with a value; at "
                    "compiler/targets/cuda/run/step_test.cc:",
                    __LINE__ - 3));
}

TEST_F(GpuStep, SmallCellsAreSetWhereTheyLie) {
  const Buffer rate(full({}, 2.0).to(cuda), "rate");
  auto f = compile([&](const Tensor& x) { return x * rate.value(); });
  const Tensor x = ones({4}).to(cuda);
  for (int i = 0; i < 6; ++i) {
    gpu.take_calls();
    rate.set(full({}, i).to(cuda));
    HostRead y({f(x)});
    if (i > 2) {
      EXPECT_EQ(gpu.take_calls().count("cuGraphExecKernelNodeSetParams_v2"), 0u);
    }
    EXPECT_EQ(y.wait()[0].to_vector<float>()[3], i);
  }
  const Tensor held = rate.value();
  rate.set(full({}, 9).to(cuda));
  EXPECT_EQ(held.item<float>(), 5);
  EXPECT_EQ(rate.value().item<float>(), 9);
}

// A new batch in each step and kept losses: one replay, with copies to and from the graph's fixed addresses.
TEST_F(GpuStep, NewArgumentsAndKeptOutputsLeaveTheGraphAlone) {
  Model on(cuda), same(cuda, {.cuda_graph = false});
  std::vector<Tensor> inputs, losses, want;
  for (int i = 0; i < 6; ++i) inputs.push_back(on.input(i));
  manual_seed(9);
  for (int i = 0; i < 6; ++i) want.push_back((*same.step)(inputs[i]));
  manual_seed(9);
  for (int i = 0; i < 6; ++i) {
    gpu.take_calls();
    losses.push_back((*on.step)(inputs[i]));  // the input and the loss have new addresses each time
    const Calls calls = gpu.take_calls();
    const CompileStats s = on.step->stats();
    EXPECT_EQ(s.measured_peak_bytes, s.planned_peak_bytes) << i;
    if (i < 2) continue;
    EXPECT_EQ(calls, (Calls{{"cuGraphLaunch", 1}, {"cuMemcpyDtoDAsync_v2", 2}})) << i;
  }
  for (int i = 0; i < 6; ++i) EXPECT_EQ(losses[i].item<float>(), want[i].item<float>()) << i;
}

TEST_F(GpuStep, ArgumentsOffTheAlignmentOfKernelsAreCopied) {
  auto f = compile([](const Tensor& x) { return x * 2 + 1; });
  const Tensor all = Tensor::from_vector({0, 1, 2, 3, 4, 5, 6, 7, 8}, {9}).to(cuda);
  for (int i = 0; i < 4; ++i) {
    gpu.take_calls();
    const Tensor y = f(all.slice(0, 1, 9));
    const Calls calls = gpu.take_calls();
    EXPECT_EQ(calls.at("cuMemcpyDtoDAsync_v2"), 1) << i;
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{3, 5, 7, 9, 11, 13, 15, 17}));
  }
}

TEST_F(GpuStep, CellsThatOthersHoldGetFreshMemory) {
  Model on(cuda);
  const Tensor x = on.input(0);
  for (int i = 0; i < 3; ++i) (*on.step)(x);
  const Tensor held = on.w.value();
  const std::vector<float> before = held.to_vector<float>();
  (*on.step)(x);
  EXPECT_EQ(on.step->stats().fresh_writes, 1);
  EXPECT_EQ(held.to_vector<float>(), before);
  EXPECT_NE(on.w.value().to_vector<float>(), before);
}

TEST_F(GpuStep, OutOfMemoryNamesCells) {
  Model model(cuda);
  (*model.step)(model.input(0));
  const std::string text = error_of([&] { Tensor::empty({kFloat32, cuda, Shape{int64_t{1} << 40}}); });
  EXPECT_NE(text.find("largest live tensors"), std::string::npos) << text;
  EXPECT_NE(text.find("w 128 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("a step's own values"), std::string::npos) << text;
}

TEST_F(GpuStep, SwitchedOff) {
  Model on(cuda, {.cuda_graph = false});
  const Tensor x = on.input(0);
  for (int i = 0; i < 3; ++i) (*on.step)(x);
  const Calls calls = gpu.take_calls();
  EXPECT_EQ(calls.count("cuGraphLaunch"), 0u);
}

TEST_F(GpuStep, FailedLaunchLeavesCellsTorn) {
  Model on(cuda, {.cuda_graph = false});
  const Tensor x = on.input(0);
  for (int i = 0; i < 2; ++i) (*on.step)(x).item<float>();
  gpu.driver().fail_launch_after(0, cuda::CUDA_ERROR_ILLEGAL_ADDRESS);
  (*on.step)(x);
  EXPECT_THROW(on.w.value().to_vector<float>(), Error);
  gpu.driver().take_complaints();
}

TEST_F(GpuStep, AFaultFoundLateTearsCellsAndSaysWhatWasQueued) {
  Model on(cuda);
  const Tensor x = on.input(0);
  HostRead last({(*on.step)(x)});
  for (int i = 0; i < 3; ++i) {
    HostRead now({(*on.step)(x)});
    last.wait();
    last = std::move(now);
  }
  last.wait();
  gpu.driver().fail_launch_after(2, cuda::CUDA_ERROR_ILLEGAL_ADDRESS);
  last = HostRead({(*on.step)(x)});
  HostRead next({(*on.step)(x)});  // queued before the failure is known
  EXPECT_FALSE(on.w.cell().torn);
  const std::string found = testing::placed_error_of([&] { last.wait(); });
  EXPECT_NE(found.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << found;
  EXPECT_NE(found.find("run again with WEFT_SYNC=1 to have it named; queued last there: a compiled step of "),
            std::string::npos)
      << found;
  EXPECT_NE(found.find(" at compiler/targets/cuda/run/step_test.cc:"), std::string::npos) << found;
  for (const CellHandle& c : {CellHandle(on.w), CellHandle(on.m)})
    EXPECT_EQ(error_of([&] { c.value(); }),
              str_cat("cell '", c.name(), "' was torn by a step that failed half-way; load a checkpoint first"));
  EXPECT_NE(error_of([&] { (*on.step)(x); }).find("was torn by a step that failed half-way"), std::string::npos);
  EXPECT_NE(error_of([&] { next.wait(); }).find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
  gpu.driver().take_complaints();
}

TEST(GpuStepInSync, AFaultNamesKernelOpAndLine) {
  set_switch("WEFT_CXX", "none");
  set_switch("WEFT_SYNC", "1");
  {
    HostKernelsGpu gpu;
    Model on(Device::cuda());
    const Tensor x = on.input(0);
    for (int i = 0; i < 2; ++i) (*on.step)(x);
    gpu.driver().fail_launch_after(1, cuda::CUDA_ERROR_ILLEGAL_ADDRESS);
    const std::string found = error_of([&] { (*on.step)(x); });
    EXPECT_EQ(found.find("cuda: kernel host_"), 0u) << found;
    EXPECT_NE(found.find(" (fused at compiler/targets/cuda/run/step_test.cc:"), std::string::npos) << found;
    EXPECT_NE(found.find(" failed on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << found;
    EXPECT_TRUE(on.w.cell().torn && on.m.cell().torn);
    gpu.driver().take_complaints();
  }
  set_switch("WEFT_SYNC", "0");
}

TEST_F(GpuStep, VerifyComparesEachLaunchWithTheCpu) {
  Model on(cuda, {.verify = true});
  const Tensor x = on.input(0);
  for (int i = 0; i < 4; ++i) (*on.step)(x).item<float>();
  const std::string report = on.step->report();
  EXPECT_NE(report.find("verify: "), std::string::npos) << report;
  EXPECT_NE(report.find(" (products) are within their bounds"), std::string::npos) << report;
  EXPECT_NE(report.find("CUDA graph: 2 replays"), std::string::npos) << report;
}

// Libraries and our own kernels may sum any product in any order, weight gradients included.
TEST_F(GpuStep, VerifyBoundsGroupedProductsOfBothModes) {
  const Tensor offsets = Tensor::from_vector(std::vector<int64_t>{0, 2, 6}, {3}).to(cuda);
  for (const char* mode : {"rows", "contraction"}) {
    const bool rows = std::string(mode) == "rows";
    auto step = compile(
        [&](Tensor a, Tensor b, Tensor o) {
          return dispatch(grouped_dot_op, {&a, &b, &o}, {{"mode", std::string(mode)}, {"out_dtype", kFloat32}});
        },
        {.verify = true});
    step(ones({6, 8}).to(cuda), (rows ? ones({2, 8, 4}) : ones({6, 4})).to(cuda), offsets);
    EXPECT_NE(step.report().find(", 1 (products) are within their bounds"), std::string::npos)
        << mode << ": " << step.report();
  }
}

TEST_F(GpuStep, VerifyFindsAWrongKernel) {
  const Parameter w(ones({2, 2}).to(cuda), "w");
  auto step = compile([&](Tensor x) { w.set(dispatch(testing::unsteady_op(), {&x}) + w.value()); }, {.verify = true});
  const std::string e = error_of([&] { step(ones({2, 2}).to(cuda)); });
  EXPECT_NE(e.find("verify: on cuda:0, unsteady: result 0 f32[2, 2] first differs from its ops run one by one at [1, "
                   "0]: got 0; need 1"),
            std::string::npos)
      << e;
}

TEST_F(GpuStep, OneDevice) {
  auto f = compile([](const Tensor& a, const Tensor& b) { return std::pair(a + 1, b + 1); });
  const Tensor x = zeros({2});
  EXPECT_EQ(error_of([&] { f(x.to(cuda), x); }),
            "compile: argument 1 is on cpu and argument 0 on cuda:0; need one device: move with to(device)");
  const Parameter p(ones({2}), "p");
  auto g = compile([&](const Tensor& a) { return a + p; });
  EXPECT_NE(error_of([&] { g(x.to(cuda)); }).find("need one device: move with to(device)"), std::string::npos);
  auto h = compile([&](const Tensor& a) { return std::pair(a + 1, p.value() + 1); });
  EXPECT_NE(error_of([&] { h(x.to(cuda)); }).find("need a step on one device: move with to(device)"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::internal
