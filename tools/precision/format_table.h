// The table of number formats.
#pragma once
#include <string>
#include <vector>

#include "framework/io/json.h"

namespace weft::precision {

/// One line per format: bits of sign, exponent and mantissa, limits, epsilon, the meaning of the top codes, and scales.
std::vector<std::vector<std::string>> format_lines();
io::OrderedJson format_json();

}  // namespace weft::precision
