// Texts about collectives in plans: names, and one name for equal layers.
#pragma once
#include <string>
#include <vector>

#include "distributed/propagate/emit.h"

namespace weft::dist {

/// "all-gather".
std::string title(Collective kind);
/// "parameters", "activations", "gradients".
const char* to_string(Subject subject);

/// The mesh dimensions of axes as Mesh::name writes them: "dp,tp:1" has dp and tp.
std::vector<std::string> dimensions_of(const std::string& axes);

/// Replaces numeric components of a path by *: "blocks.12.attn" becomes "blocks.*.attn".
std::string layers_as_one(const std::string& name);

}  // namespace weft::dist
