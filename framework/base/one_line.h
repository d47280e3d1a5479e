// Messages quote names from files and command lines, which may contain any bytes.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

/// `text` on one line that a terminal can show: control characters as \n, \t and \xHH. More than `most` bytes are
/// shortened in the middle.
std::string one_line(std::string_view text, size_t most = 4000);

}  // namespace weft
