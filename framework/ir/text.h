// Pieces of graph text that the printer, the parser and Graphviz share.
#pragma once
#include <string>
#include <string_view>

#include "framework/ir/graph.h"

namespace weft::internal {

/// `s` in double quotes; control characters, quotes and backslashes are escaped:
/// \t \" \\ \xHH.
std::string quoted(std::string_view s);
/// Text of a double that reads back with the same bits and never looks like an integer: 2.0, 1e-05, inf, -nan,
/// nan(0x7ff8...).
std::string exact(double v);
/// Letters, digits and _, not starting with a digit.
bool is_identifier(std::string_view s);
/// One attribute's value; the lines of a nested graph start with `indent`.
void append_value(std::string& out, const AttrValue& v, const std::string& indent);
/// "%5", or "%5.1" for one of several results.
std::string value_name(const Graph& g, Value v);
/// The file without its folders.
std::string_view base_name(std::string_view file);

}  // namespace weft::internal
