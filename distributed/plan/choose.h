// Plan::automatic(): plans all known settings for a mesh, or for all meshes of a size, one after another and without
// allocating. Chooses the plan that fits with the shortest predicted step time; keeps the others with the reasons.
#pragma once
#include "distributed/plan/mesh_plan.h"

namespace weft::dist {

/// Tries every combination of the values of OptionRow::tried on `how.mesh`. If `how.plan.world` is set, it tries the
/// meshes of `world` ranks that `Strategy::sizes` gives: first with default options, then the best four with all
/// options. Rules and all else come from `how`. Throws ResourceExhausted if no plan fits `how.memory_budget`, and the
/// error of the first candidate if none can be planned.
MeshPartition choose_plan(const Ref<Graph>& joint, const CompileOptions& how, const PartitionScope& scope);

}  // namespace weft::dist
