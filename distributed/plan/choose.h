// Plan::automatic(): the plans known for a mesh, or for all meshes of a size, planned one after another without memory;
// the one with the least predicted step time that fits is taken, the others are kept with what speaks against them.
#pragma once
#include "distributed/plan/mesh_plan.h"

namespace weft::dist {

/// Tried are, of `how.mesh`, ZeRO stages, lowerings of context parallelism, sequence parallelism, keeping what forward
/// gathered; with `how.plan.world` the meshes of so many ranks over dp or fsdp, ep, cp and tp, by default first, and
/// the best four of them in every setting. Rules and everything else are those of `how`.
/// Throws ResourceExhausted if none fits `how.memory_budget`, and the first candidate's error if none can be laid out.
MeshPlan choose_plan(const Ref<Graph>& joint, const CompileOptions& how, const PlanScope& scope);

}  // namespace weft::dist
