// A picture of a graph by module, as SVG: forward, backward and update beside each other. It needs no script and is
// readable in grey.
#pragma once
#include <string>

#include "compiler/exec/record.h"
#include "framework/ir/graph.h"

namespace weft::tools {

/// `record`: of the step whose scheduled graph `g` is, for times; or null. Modules open while there are at most
/// `most_rows` rows.
std::string graph_svg(const std::string& title, const Graph& g, const StepRecord* record = nullptr, int most_rows = 40);

}  // namespace weft::tools
