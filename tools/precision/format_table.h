// The table of number formats.
#pragma once
#include <string>
#include <vector>

#include "framework/io/json.h"

namespace weft::precision {

/// One line a format: bits of sign, exponent and mantissa, limits, epsilon, what the top codes mean, and scales.
std::vector<std::vector<std::string>> format_lines();
io::OrderedJson format_json();

}  // namespace weft::precision
