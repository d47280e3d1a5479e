// A plan as text: what a step compiled ahead of time runs by. It holds numbers only; the graph it belongs to has its
// own text, and kernels are functions that the reader gives.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "compiler/exec/plan.h"

namespace weft::internal {

/// Text that plan_from_text reads back to a plan that runs the same.
std::string plan_to_text(const Plan& plan);

/// The plan for `graph`, which must be the one it was written for; kernel i of kernels_of() runs functions[i].
/// Workspaces, and then the arena, grow if this machine has more threads.
/// Throws InvalidArgument, naming the line, for any other text.
Plan plan_from_text(std::string_view text, Ref<Graph> graph, std::span<const void* const> functions);

}  // namespace weft::internal
