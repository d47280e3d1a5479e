// Plan::automatic(): plans the known settings for a mesh, or for all meshes of a size, one after another and without
// memory. Takes the one with the shortest predicted step time that fits; the others are kept with the reasons.
#pragma once
#include "distributed/plan/mesh_plan.h"

namespace weft::dist {

/// Tries every combination of the values of OptionRow::tried on `how.mesh`. With `how.plan.world` it tries the meshes
/// of that many ranks that `Strategy::sizes` gives: first with default options, then the best four with all options.
/// Rules and everything else are those of `how`. Throws ResourceExhausted if no plan fits `how.memory_budget`, and the
/// error of the first candidate if none can be planned.
MeshPlan choose_plan(const Ref<Graph>& joint, const CompileOptions& how, const PlanScope& scope);

}  // namespace weft::dist
