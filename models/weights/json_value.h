// A value of a configuration as JSON.
#pragma once
#include <string>

#include "framework/io/json.h"

namespace weft::weights {

/// Numbers and bools as themselves, all else as texts.
io::Json json_value(const std::string& text);

}  // namespace weft::weights
