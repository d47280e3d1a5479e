// A picture of a graph by module, as SVG: forward, backward and update side by side. It needs no script and is
// readable in grey.
#pragma once
#include <string>

#include "compiler/exec/record/record.h"
#include "framework/ir/graph.h"

namespace weft::tools {

/// `record`: the record of the step with the scheduled graph `g`, for times; or null. Modules open while there are at
/// most 40 rows.
std::string graph_svg(const std::string& title, const Graph& g, const StepRecord* record = nullptr);

}  // namespace weft::tools
