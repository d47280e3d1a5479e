// dist::compile: a single-device step, laid over a mesh.
#pragma once
#include "compiler/exec/compile.h"
#include "compiler/exec/partitioned.h"
#include "distributed/plan/report.h"

namespace weft::dist {

class World;

struct CompileOptions {
  Mesh mesh = {};
  Plan plan = {};
  int64_t memory_budget = 0;  // bytes of one rank; 0 is no limit
  std::string numerics = "fast";
  bool verify_numerics = false;  // the bits of one device that also has it: sums do not depend on order
  std::vector<std::string> disable = {};
  std::string kernel_cache = {};
  CommunicationOptions communication;    // bucketing, overlap, and the network they are planned for
  std::vector<std::string> forbid = {};  // "allgather@dp:activations": plans with such a collective are errors
  std::string machine = "cpu";           // for which Plan::automatic() chooses: distributed/plan/machine.h

  /// The options of weft::compile, with the partitioner for this mesh.
  weft::CompileOptions for_one_rank() const;
};

}  // namespace weft::dist

namespace weft::internal {

/// Options whose partitioner plans only: calling the step is an error.
CompileOptions options_to_plan(const dist::CompileOptions& options);
dist::PlanReport plan_report(const CompiledCore& core, const std::string& machine);
dist::World& world_of(const CompiledCore& core);

}  // namespace weft::internal

namespace weft::dist {

/// A function compiled for a mesh: as weft::Compiled, and it tells its plan.
template <class Fn>
class Compiled : public weft::Compiled<Fn> {
 public:
  Compiled(Fn fn, const CompileOptions& options) : weft::Compiled<Fn>(std::move(fn), options.for_one_rank()) {}
  /// How the call or prepare() used last is laid out; predicted times are of `machine`: "cpu", "h100", "a100".
  PlanReport plan(const std::string& machine = "cpu") const {
    return weft::internal::plan_report(*this->core(), machine);
  }
  /// The ranks that run it, for their statistics. Throws FailedPrecondition before the first call, and for one rank.
  World& world() const { return weft::internal::world_of(*this->core()); }
};

/// `fn` compiled as by weft::compile and run by all ranks of the mesh: arguments, results and cells are the whole ones.
template <class Fn>
Compiled<std::decay_t<Fn>> compile(Fn&& fn, const CompileOptions& options) {
  return {std::forward<Fn>(fn), options};
}

/// The plan alone, of a mesh of any size: nothing is allocated or compiled. Arguments may be on meta.
template <class Fn, class... A>
PlanReport plan(Fn&& fn, const CompileOptions& options, const A&... args) {
  weft::Compiled<std::decay_t<Fn>> step(std::forward<Fn>(fn), weft::internal::options_to_plan(options));
  step.prepare(args...);
  return weft::internal::plan_report(*step.core(), options.machine);
}

}  // namespace weft::dist
