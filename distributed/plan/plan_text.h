// Plans as small text files with the mesh, the options, and the placement of each parameter that is split at use.
#pragma once
#include <string_view>

#include "distributed/plan/report.h"

namespace weft::dist {

struct SavedPlan {
  Mesh mesh;
  Plan plan;
  uint64_t hash = 0;  // PlanReport::hash() of the saved plan; 0: the file has none
};

/// Lines: "weft plan 1", "mesh fsdp2,tp2", one for each option ("zero 3", "sequence on", "cp ring"), "hash
/// 0123456789abcdef", and for each parameter "split NAME DIMENSION DIM" or "whole NAME DIMENSION". The last line is
/// "end": a file without it is incomplete. `hashed`: writes the hash, for a plan that the same step reads again.
std::string plan_text(const PlanReport& report, bool hashed = true);
/// Throws InvalidArgument with the line, the value and the allowed values. Safe for any bytes. `strategies`:
/// Plan::strategies, whose options the text may set.
SavedPlan parse_plan(std::string_view text, const std::vector<const Strategy*>& strategies = {});

void save_plan(const PlanReport& report, const std::string& path, bool hashed = true);
/// Reads the plan of a file; errors name the file.
SavedPlan load_plan(const std::string& path, const std::vector<const Strategy*>& strategies = {});

}  // namespace weft::dist
