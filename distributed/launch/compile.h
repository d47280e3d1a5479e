// dist::compile: compiles a single-device step for the ranks of a mesh.
#pragma once
#include "compiler/exec/compile.h"
#include "distributed/launch/sharded_cell.h"
#include "distributed/overlap/arrange.h"
#include "distributed/plan/report.h"

namespace weft::internal {

/// The options with a partitioner for their mesh. Throws InvalidArgument for options that a mesh does not support.
CompileOptions for_mesh(CompileOptions options);
/// The options for a step that is only planned: calling such a step is an error.
CompileOptions for_planning(CompileOptions options);
dist::PlanReport plan_report(const CompiledCore& core, const std::string& machine);
dist::World& world_of(const CompiledCore& core);
dist::CellShards shards_of(const CompiledCore& core, bool made);

}  // namespace weft::internal

namespace weft {

template <class Fn>
dist::PlanReport Compiled<Fn>::plan(const std::string& machine) const {
  return internal::plan_report(*core_, machine);
}
template <class Fn>
dist::World& Compiled<Fn>::world() const {
  return internal::world_of(*core_);
}

}  // namespace weft

namespace weft::dist {

using weft::Compiled;
using weft::CompileOptions;

/// Compiles `fn` as weft::compile does and runs it on all ranks of options.mesh. Arguments, results and cells have
/// their global shapes.
template <class Fn>
Compiled<std::decay_t<Fn>> compile(Fn&& fn, CompileOptions options,
                                   std::source_location loc = std::source_location::current()) {
  internal::LineScope here(loc);
  return {std::forward<Fn>(fn), internal::for_mesh(std::move(options)), loc};
}

/// The cells of a step on a mesh with their shards, as its next call uses them. `made`: the shards have the values of
/// the cells; otherwise a cell that no call has used yet may have other shards, or a whole value. Empty on one device.
template <class Fn>
CellShards shards_of(const Compiled<Fn>& step, bool made) {
  return internal::shards_of(*step.core(), made);
}

/// The plan for a mesh of any size. Allocates and compiles nothing; arguments may be on the meta device.
template <class Fn, class... A>
PlanReport plan(Fn&& fn, const CompileOptions& options, const A&... args) {
  Compiled<std::decay_t<Fn>> step(std::forward<Fn>(fn), internal::for_planning(options));
  step.prepare(args...);
  return step.plan(options.machine);
}

}  // namespace weft::dist
