// A plan as text, for a step compiled ahead of time. It contains numbers only: the graph has its own text, and the
// reader passes the kernels as functions.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "compiler/exec/plan/plan.h"

namespace weft::internal {

/// Text that plan_from_text reads back to an equivalent plan.
std::string plan_to_text(const MemoryLayout& plan);

/// The plan for `graph`, the graph for which the text was written. Kernel i of kernels_of() runs functions[i]. If this
/// machine has more threads, the workspaces and the arena grow. Throws InvalidArgument, naming the line, for any other
/// text.
MemoryLayout plan_from_text(std::string_view text, Ref<Graph> graph, std::span<const void* const> functions);

}  // namespace weft::internal
