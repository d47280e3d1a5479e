// Finds the kernel parameter at a byte of the parameter struct, from the kernel's text, for messages.
#pragma once
#include <string>

namespace weft::cuda {

/// "parameter x0", "parameter q.data"; "the address at byte 8 of the parameters" if the text cannot be parsed.
std::string parameter_name(const std::string& text, int byte);

}  // namespace weft::cuda
