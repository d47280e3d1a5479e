// Text of collectives in plans: names, bytes, seconds, and one name for equal layers.
#pragma once
#include <string>
#include <vector>

#include "distributed/propagate/emit.h"

namespace weft::dist {

/// "all-gather".
std::string title(Collective kind);
/// "forward", "backward", "update".
const char* to_string(Phase phase);
/// "parameters", "activations", "gradients".
const char* to_string(Subject subject);

/// "512 B", "1.5 KB", "134 MB": powers of ten, three digits.
std::string bytes_text(double bytes);
/// "3.2 us", "12 ms", "1.2 s".
std::string seconds_text(double seconds);

/// The mesh dimensions of axes as Mesh::name writes them: "dp,tp:1" has dp and tp.
std::vector<std::string> dimensions_of(const std::string& axes);

/// Numbers that stand alone in a path become *: "blocks.12.attn" is "blocks.*.attn".
std::string layers_as_one(const std::string& name);

}  // namespace weft::dist
