// The libraries that Weft loads where it finds them.
#pragma once
#include "tools/facts.h"

namespace weft::tools {

/// Adds section "libraries": oneDNN, and CUDA's libraries with their versions or the reason they cannot be used.
void add_libraries(Facts& facts);

}  // namespace weft::tools
