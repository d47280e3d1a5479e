// dist::compile: compiles a single-device step for the ranks of a mesh.
#pragma once
#include "compiler/exec/compile.h"
#include "compiler/exec/partitioned.h"
#include "distributed/plan/report.h"

namespace weft::dist {

class World;

struct CompileOptions {
  Mesh mesh = {};
  Plan plan = {};
  int64_t memory_budget = 0;  // bytes of one rank; 0: no limit
  std::string numerics = "fast";
  bool verify_numerics = false;  // gives the same bits as one device with this option: sums do not depend on order
  std::vector<std::string> disable = {};
  std::string kernel_cache = {};
  CommunicationOptions communication;    // bucketing, overlap, and the network that they assume
  std::vector<std::string> forbid = {};  // "allgather@dp:activations": a plan with such a collective is an error
  std::string machine = "cpu";           // the machine that Plan::automatic() plans for: distributed/plan/machine.h
  double timeout = kDefaultTimeout;      // seconds a rank waits for the others before the step fails

  /// The options of weft::compile, with the partitioner for this mesh.
  weft::CompileOptions for_one_rank() const;
};

}  // namespace weft::dist

namespace weft::internal {

/// Options for a step that is planned only: it cannot be called.
CompileOptions options_to_plan(const dist::CompileOptions& options);
dist::PlanReport plan_report(const CompiledCore& core, const std::string& machine);
dist::World& world_of(const CompiledCore& core);

}  // namespace weft::internal

namespace weft::dist {

/// A function compiled for a mesh: a weft::Compiled that also reports its plan.
template <class Fn>
class Compiled : public weft::Compiled<Fn> {
 public:
  Compiled(Fn fn, const CompileOptions& options) : weft::Compiled<Fn>(std::move(fn), options.for_one_rank()) {}
  /// The plan of the last call or prepare(), with times predicted for `machine`: "cpu", "h100", "a100".
  PlanReport plan(const std::string& machine = "cpu") const {
    return weft::internal::plan_report(*this->core(), machine);
  }
  /// The ranks that run the step, for their statistics. Throws FailedPrecondition on one rank or before the first call.
  World& world() const { return weft::internal::world_of(*this->core()); }
};

/// Compiles `fn` as weft::compile does and runs it on all ranks of the mesh. Arguments, results and cells are whole.
template <class Fn>
Compiled<std::decay_t<Fn>> compile(Fn&& fn, const CompileOptions& options) {
  return {std::forward<Fn>(fn), options};
}

/// Only the plan, for a mesh of any size: nothing is allocated or compiled. Arguments may be on meta.
template <class Fn, class... A>
PlanReport plan(Fn&& fn, const CompileOptions& options, const A&... args) {
  weft::Compiled<std::decay_t<Fn>> step(std::forward<Fn>(fn), weft::internal::options_to_plan(options));
  step.prepare(args...);
  return weft::internal::plan_report(*step.core(), options.machine);
}

}  // namespace weft::dist
