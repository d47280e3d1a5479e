// Running one program in every way it can be run, for tests: all must give the same bits.
#pragma once
#include <functional>

#include "compiler/exec/compile.h"
#include "framework/base/switches.h"
#include "framework/dispatch/generator.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"

namespace weft::testing {

using Tensors = std::vector<Tensor>;

/// A program: state and a step over it. `make` is called once per way of running.
struct Program {
  std::vector<CellHandle> cells;
  std::function<Tensors(Tensors)> step;
};

struct RunResult {
  std::vector<Tensors> outputs;  // by step
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
