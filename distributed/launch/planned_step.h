// The planned collectives of a compiled step, for diagnosis of the job that runs it.
#pragma once
#include <utility>
#include <vector>

#include "compiler/exec/entry.h"
#include "distributed/diagnose/planned.h"
#include "distributed/plan/mesh_plan.h"

namespace weft::dist {

/// The collectives that each program starts, in order, including the agreement of all ranks before they write.
std::vector<std::vector<diagnose::PlannedRow>> planned_rows(const MeshPartition& plan,
                                                            const std::vector<internal::PreparedGraph>& planned);
/// Writes the rows for the ranks of this process into the folder of the flight recorder, with the program of each rank.
/// `mesh` is the mesh of all ranks of the job. Returns the number of the step, from 1; a file that cannot be written is
/// a warning.
uint16_t save_planned_step(const Mesh& mesh, const MeshPartition& plan,
                           const std::vector<internal::PreparedGraph>& planned,
                           const std::vector<std::pair<int, int>>& program_of);

}  // namespace weft::dist
