// Fused nodes in compiled steps, made by hand: kernels give the bits of their ops, for any layout of operands and any
// number of threads, results take the memory of operands and cells, and lengths share kernels.
#include <gtest/gtest.h>

#include "compiler/exec/testing/test_programs.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/passes/lower.h"
#include "compiler/targets/cpu/target.h"
#include "framework/autodiff/grad.h"
#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/interpreter.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::expect_fused_bits;
using testing::fused;
using testing::normal;
using testing::same_bits;
using Args = std::span<const Tensor>;
using Tensors = std::vector<Tensor>;

TEST(FusedStep, KernelsGiveTheBitsOfTheirOps) {
  for (DType t : {kFloat32, kBFloat16}) {
    SCOPED_TRACE(str_cat(t));
    expect_fused_bits([](Args x) { return Tensors{gelu(x[0], "tanh") * x[1]}; },
                      {normal({5, 700, 33}, t), normal({5, 700, 33}, t)});
    expect_fused_bits([](Args x) { return Tensors{exp(x[0]).transpose(0, 1) + x[1]}; },
                      {normal({33, 200}, t), normal({200, 33}, t)});
    expect_fused_bits([](Args x) { return Tensors{x[0] + x[1]}; },
                      {normal({200, 330}, t).transpose(0, 1), normal({330, 200}, t)});
    expect_fused_bits([](Args x) { return Tensors{softmax(x[0], -1)}; }, {normal({70, 300}, t)});
    expect_fused_bits([](Args x) { return Tensors{softmax(x[0], 0)}; }, {normal({70, 300}, t)});
    expect_fused_bits(
        [](Args x) {
          return Tensors{rms_norm(x[0] + x[1], {300}, x[2]), x[0] + x[1]};
        },
        {normal({70, 300}, t), normal({70, 300}, t), normal({300}, t)});
    expect_fused_bits([](Args x) { return Tensors{(x[0] * x[1]).sum({0})}; },
                      {normal({3000, 30}, t), normal({3000, 30}, t)});
    expect_fused_bits([](Args x) { return Tensors{(x[0] * x[1]).sum()}; },
                      {normal({300'000}, t), normal({300'000}, t)});
    expect_fused_bits([](Args x) { return Tensors{x[0].amax({1}) - x[1]}; }, {normal({3, 3000}, t), normal({3}, t)});
  }
}

TEST(FusedStep, NormBackwardSumsRowsAndColumnsAtOnce) {
  auto backward = [](Args x) {
    Tensor n = x[0] - x[0].mean({1}, true);
    Tensor g = x[1] * x[2];
    Tensor gx = g - g.mean({1}, true) - n * (g * n).mean({1}, true);
    return Tensors{gx, (x[1] * n).sum({0}), x[1].sum({0})};
  };
  for (int64_t rows : {5, 768, 3000})
    expect_fused_bits(backward, {normal({rows, 96}), normal({rows, 96}), normal({96})});
}

TEST(FusedStep, EpiloguesOfProductsRunOnTheTile) {
  for (auto [m, n, k] :
       {std::array<int64_t, 3>{5, 7, 3}, {300, 520, 64}, {1, 64, 64}, {64, 1000, 32}, {256, 512, 100}}) {
    SCOPED_TRACE(str_cat(m, " ", n, " ", k));
    expect_fused_bits([](Args x) { return Tensors{gelu(matmul(x[0], x[1]) + x[2], "tanh") + x[3]}; },
                      {normal({m, k}), normal({k, n}), normal({n}), normal({m, n})});
    expect_fused_bits([](Args x) { return Tensors{matmul(x[0], x[1]) * 0.125 + x[2]}; },
                      {normal({2, 3, m, k}), normal({2, 3, k, n}), normal({m, n})});
    expect_fused_bits([](Args x) { return Tensors{relu(matmul(x[0], x[1]) + x[2])}; },
                      {normal({m, k}, kBFloat16), normal({k, n}, kBFloat16), normal({n}, kBFloat16)});
  }
}

TEST(FusedStep, SeveralResultsTakeTheMemoryOfCells) {
  auto make = [] {
    testing::Program p;
    std::vector<Parameter> cells;
    for (int i = 0; i < 3; ++i)
      cells.push_back(Parameter(TensorType{kFloat32, {}, {40, 50}}, [] { return randn({40, 50}); }));
    for (const Parameter& c : cells) p.cells.push_back(c);
    p.step = [cells](Tensors in) {
      Tensors n = fused(
          [](Args x) {
            Tensor m = x[1] * 0.9 + x[3] * 0.1, v = x[2] * 0.99 + x[3] * x[3] * 0.01;
            return Tensors{x[0] - m / (sqrt(abs(v)) + 1e-8) * 0.01, m, v};
          },
          {cells[0], cells[1], cells[2], in[0]});
      for (int i = 0; i < 3; ++i) cells[i].set(n[i]);
      return Tensors{};
    };
    return p;
  };
  const std::vector<Tensors> inputs(3, {normal({40, 50})});
  const testing::RunResult r = testing::expect_same_everywhere(make, inputs);
  EXPECT_EQ(r.stats.in_place_writes, 3);
  EXPECT_EQ(r.stats.copies, 0);
  EXPECT_EQ(r.stats.kernels, 1);
  EXPECT_EQ(r.stats.arena_bytes, 0);
}

TEST(FusedStep, ResultsTakeTheMemoryOfOperands) {
  auto step = compile([&](Tensors x) {
    Tensors t = fused([](Args y) { return Tensors{y[0] + 1.0, y[0] * 2.0}; }, x);
    t = fused([](Args y) { return Tensors{y[0] * y[1], y[0] - y[1]}; }, t);
    return fused([](Args y) { return Tensors{exp(y[0]) + y[1]}; }, t);
  });
  step(Tensors{normal({1000})});
  // Two values alive, the third result over one of them.
  EXPECT_EQ(step.stats().arena_bytes, 4032) << step.report();
}

TEST(FusedStep, LengthsShareKernels) {
  auto step =
      compile([&](Tensors x) { return fused([](Args y) { return Tensors{softmax(y[0] * 0.5, -1) * y[1]}; }, x); });
  const Tensor w = normal({64});
  step(Tensors{normal({2, 64}), w});
  const int64_t compiled = step.stats().compilations;
  for (int64_t n = 3; n < 203; ++n) step(Tensors{normal({n, 64}), w});
  EXPECT_EQ(step.stats().captures, 201);
  EXPECT_EQ(step.stats().compilations, compiled);
}

// The error of verification for a step with damaged kernels.
std::string caught(void (*fault)(loop_ir::Lowered&), const TensorFn& fn, const Tensors& in) {
  internal::forget_operations(DeviceType::kCpu);
  internal::fault_for_test = fault;
  auto step = compile([&](Tensors x) { return fused(fn, x); });
  const std::string error = testing::error_of([&] { step(in); });
  internal::fault_for_test = nullptr;
  internal::forget_operations(DeviceType::kCpu);
  EXPECT_NE(error.find("verify: kernel "), std::string::npos) << error;
  return error;
}

TEST(FusedStep, DamagedKernelsAreCaughtNamedAndReproduced) {
  const TensorFn soft = [](Args x) { return Tensors{softmax(x[0], -1)}; };
  const Tensors in = {normal({7, 37})};
  std::string e = caught(
      [](loop_ir::Lowered& low) {
        for (loop_ir::Instr& i : low.kernel.instrs)
          if (i.op == loop_ir::Op::kPw && i.pw == kernels::Pw::exp) i.pw = kernels::Pw::expm1;
      },
      soft, in);
  EXPECT_NE(e.find("exp"), std::string::npos) << e;
  EXPECT_NE(e.find("[0, 0]"), std::string::npos) << e;
  // The maximum is not subtracted, which changes nothing in exact arithmetic.
  caught(
      [](loop_ir::Lowered& low) {
        for (loop_ir::Instr& i : low.kernel.instrs)
          if (i.op == loop_ir::Op::kPw && i.pw == kernels::Pw::sub) i.pw = kernels::Pw::maximum;
      },
      soft, in);
  // One lane too few.
  e = caught([](loop_ir::Lowered& low) { low.extents.back() -= 1; }, [](Args x) { return Tensors{exp(x[0]) * 2.0}; },
             {normal({1000})});
  EXPECT_NE(e.find("[999]"), std::string::npos) << e;
  // The file compiles alone and shows the difference.
  const size_t at = e.find("reproduction: ");
  ASSERT_NE(at, std::string::npos) << e;
  const std::string path = e.substr(at + 14, e.find(".cc", at) + 3 - at - 14), out = path + ".out";
  const std::string isa = selected_isa() == Isa::avx512 ? "x86-64-v4"
                          : selected_isa() == Isa::avx2 ? "x86-64-v3"
                                                        : "x86-64-v2";
  if (std::system("g++ --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no g++";
  ASSERT_EQ(
      std::system(str_cat("g++ -std=c++20 -O2 -ffp-contract=off -fwrapv -mprefer-vector-width=512 -Wno-psabi -march=",
                          isa, " ", path, " -o ", out)
                      .c_str()),
      0);
  EXPECT_EQ(WEXITSTATUS(std::system(out.c_str())), 1);
}

TEST(FusedStep, WithoutACompilerKernelsAreInterpreted) {
  const std::string before = switch_value("WEFT_CXX");
  set_switch("WEFT_CXX", "/no/such/compiler");
  // Kernels that no other test has.
  auto fn = [](Args x) { return Tensors{tanh(x[0] * x[1]) - sigmoid(x[0]), (exp(x[0]) * x[1]).sum({0})}; };
  auto step = compile([&](Tensors x) { return fused(fn, x); }, {.kernel_cache = "off"});
  const Tensors in = {normal({300, 40}), normal({300, 40})};
  const Tensors got = step(in), want = fn(in);
  set_switch("WEFT_CXX", before);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i]));
  EXPECT_NE(step.report().find("kernels are interpreted: "), std::string::npos) << step.report();
}

TEST(FusedStep, ReportAndWhyTellOfKernels) {
  auto step = compile([](Tensor x, Tensor w) { return softmax(gelu(matmul(x, w)), -1).sum(); });
  step(normal({40, 30}), normal({30, 50}));
  const std::string report = step.report();
  EXPECT_NE(report.find("kernels ("), std::string::npos) << report;
  EXPECT_NE(report.find("predicted"), std::string::npos) << report;
  EXPECT_FALSE(step.why("dot", "reduce_max").empty());
  EXPECT_NE(testing::error_of([&] { step.why("dot", "no_such_op"); }), "");
}

}  // namespace
}  // namespace weft
