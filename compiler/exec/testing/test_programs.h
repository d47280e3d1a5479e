// Runs one program in every possible way, for tests. All ways must give the same bits.
#pragma once
#include <functional>

#include "compiler/exec/compile.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/passes/lower.h"
#include "compiler/targets/cpu/target.h"
#include "compiler/targets/operations.h"
#include "framework/base/switches.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/state/generator.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/core/core.h"

namespace weft::testing {

using Tensors = std::vector<Tensor>;

/// f32 arguments for `steps` steps.
inline std::vector<Tensors> random_inputs(int steps, const std::vector<Shape>& shapes, uint64_t seed = 1) {
  Random random(seed);
  std::vector<Tensors> all(steps);
  for (Tensors& in : all)
    for (const Shape& s : shapes) in.push_back(random_tensor(kFloat32, s, random));
  return all;
}

/// Normal values, with another seed in each call of a process.
inline Tensor normal(const Shape& shape, DType dtype = kFloat32) {
  static int seed = 0;
  manual_seed(++seed);
  return randn(shape).to(dtype);
}

inline Parameter random_parameter(const Shape& shape) {
  return Parameter(TensorType{kFloat32, {}, shape}, [=] { return randn(shape) * 0.3; });
}

/// An op of f32 whose kernel gives another result in each run: zeros, but the number of earlier runs at position 2.
inline const OpDef& unsteady_op() {
  static int runs = 0;
  static const OpDef op = {.name = "unsteady",
                           .infer = [](const InferCall& c) { return Types{c.in[0]}; },
                           .kernel =
                               [](const KernelCall& c) {
                                 for (int64_t i = 0; i < c.out[0].numel(); ++i) c.out[0].as<float>()[i] = 0;
                                 c.out[0].as<float>()[2] = static_cast<float>(runs++);
                               }};
  return op;
}

/// fn's ops in a graph, lowered as for kernels.
inline Ref<Graph> lowered_body(const TensorFn& fn, const Tensors& in) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  return internal::lower(*capture_graph(fn, types));
}

/// fn as one fused node where it is traced; elsewhere its plain ops.
inline Tensors fused(const TensorFn& fn, const Tensors& in) {
  if (!internal::thread_state.capture) return fn(in);
  SmallVec<const Tensor*, 4> operands;
  for (const Tensor& t : in) operands.push_back(&t);
  return dispatch_multi(loop_ir::fused_op, operands, {{"body", lowered_body(fn, in)}});
}

/// Expects the bits of eager from one fused node for each number of threads.
inline void expect_fused_bits(const TensorFn& fn, const Tensors& in, std::initializer_list<int> threads = {1, 2, 3}) {
  Tensors want;
  {
    NoGrad guard;
    want = fn(in);
  }
  const int before = num_threads();
  for (int n : threads) {
    set_num_threads(n);
    auto step = compile([&](Tensors x) { return fused(fn, x); }, {.numerics = "eager"});
    for (int run = 0; run < 2; ++run) {
      const Tensors got = step(in);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_TRUE(same_bits(got[i], want[i])) << n << " threads, result " << i << "\n" << step.report();
    }
    EXPECT_EQ(step.stats().planned_peak_bytes, step.stats().measured_peak_bytes);
  }
  set_num_threads(before);
}

/// Gives a switch another value during its lifetime.
struct Switched {
  Switched(const char* name, const std::string& value) : name_(name), before_(switch_value(name)) {
    set_switch(name, value);
  }
  ~Switched() { set_switch(name_, before_); }
  Switched(const Switched&) = delete;
  const char* name_;
  std::string before_;
};

/// A program: state and a step over it. `make` is called once per way of running.
struct Program {
  std::vector<CellHandle> cells;
  std::function<Tensors(Tensors)> step;
};

struct RunResult {
  std::vector<Tensors> outputs;  // index: step
  Tensors cells;                 // at the end
  CompileStats stats;
};

inline RunResult run_program(const std::function<Program()>& make, const std::vector<Tensors>& inputs,
                             const std::string& exec, CompileOptions options = {}) {
  set_switch("WEFT_EXEC", exec);
  manual_seed(7);
  Program p = make();
  auto step = compile([&](Tensors in) { return p.step(in); }, options);
  set_switch("WEFT_EXEC", "compiled");
  RunResult r;
  for (const Tensors& in : inputs) r.outputs.push_back(step(in));
  for (const CellHandle& c : p.cells) r.cells.push_back(CellHandle(c).value().detach());
  r.stats = step.stats();
  return r;
}

/// Eager, not enabled, interpreted, compiled and verified runs agree to the bit; returns the compiled run.
inline RunResult expect_same_everywhere(const std::function<Program()>& make, const std::vector<Tensors>& inputs) {
  const RunResult want = run_program(make, inputs, "eager");
  struct Way {
    const char* name;
    const char* exec;
    CompileOptions options;
  };
  RunResult compiled;
  for (const Way& way : {Way{"not enabled", "compiled", {.enabled = false}}, Way{"interp", "interp", {}},
                         Way{"verified", "compiled", {.verify = true}},
                         Way{"no passes", "compiled", {.disable = {"all"}}}, Way{"compiled", "compiled", {}}}) {
    RunResult got = run_program(make, inputs, way.exec, way.options);
    for (size_t s = 0; s < inputs.size(); ++s) {
      EXPECT_EQ(got.outputs[s].size(), want.outputs[s].size()) << way.name;
      for (size_t i = 0; i < std::min(got.outputs[s].size(), want.outputs[s].size()); ++i)
        EXPECT_TRUE(same_bits(got.outputs[s][i], want.outputs[s][i])) << way.name << ", step " << s << ", output " << i;
    }
    for (size_t c = 0; c < want.cells.size(); ++c)
      EXPECT_TRUE(same_bits(got.cells[c], want.cells[c])) << way.name << ", cell " << c;
    compiled = std::move(got);
  }
  EXPECT_EQ(compiled.stats.planned_peak_bytes, compiled.stats.measured_peak_bytes);
  return compiled;
}

}  // namespace weft::testing
