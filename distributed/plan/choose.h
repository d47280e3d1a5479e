// Plan::automatic(): the plans known for a mesh, or for all meshes of a size, planned one after another without memory;
// the one with the least predicted step time that fits is taken, the others are kept with what speaks against them.
#pragma once
#include "distributed/plan/mesh_plan.h"

namespace weft::dist {

/// Layouts to try: of `how.mesh`, or of meshes with `how.plan.world` ranks; ZeRO stages, sequence parallelism, keeping
/// what forward gathered. Rules and everything else are those of `how`.
std::vector<LayOut> candidate_layouts(const LayOut& how);

/// "fsdp4,tp2, zero 3, sequence".
std::string layout_text(const LayOut& how);

/// Throws ResourceExhausted if none fits `how.memory_limit`, and the first candidate's error if none can be laid out.
MeshPlan choose_plan(const Ref<Graph>& joint, const LayOut& how);

}  // namespace weft::dist
