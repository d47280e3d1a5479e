// Plans as small text files: mesh, options and the placement of each parameter that is split at use.
#pragma once
#include <string_view>

#include "distributed/plan/report.h"

namespace weft::dist {

struct SavedPlan {
  Mesh mesh;
  Plan plan;
  uint64_t hash = 0;  // PlanReport::hash() of the plan that was saved
};

/// Lines: "weft plan 1", "mesh fsdp2,tp2", "zero 3", "sequence on", "keep_gathered off", "cp ring", "cp_layout auto",
/// "expert_room 0", "hash 0123456789abcdef", and for each parameter "split NAME DIMENSION DIM" or
/// "whole NAME DIMENSION".
std::string plan_text(const PlanReport& report);
/// Throws InvalidArgument with the line, what was got and what is needed; any bytes are safe.
SavedPlan parse_plan(std::string_view text);

void save_plan(const PlanReport& report, const std::string& path);
SavedPlan load_plan(const std::string& path);

}  // namespace weft::dist
