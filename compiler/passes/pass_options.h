// The options of passes that follow from CompileOptions, for one device and for a mesh.
#pragma once
#include "compiler/options.h"
#include "compiler/passes/pass.h"

namespace weft::internal {

/// Passes report to `report`, unless it is null.
PassOptions pass_options(const CompileOptions& options, std::vector<PassReport>* report = nullptr);

}  // namespace weft::internal
