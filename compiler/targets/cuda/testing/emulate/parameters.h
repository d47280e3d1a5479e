// Which of a kernel's parameters lies at a byte of its parameter structure, read from the kernel's text, for messages.
#pragma once
#include <string>

namespace weft::cuda {

/// "parameter x0", "parameter q.data"; "the address at byte 8 of the parameters" where the text is not understood.
std::string parameter_name(const std::string& text, int byte);

}  // namespace weft::cuda
