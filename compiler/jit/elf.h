// Checks shared objects before they are loaded.
#pragma once
#include <string>

namespace weft::jit {

/// True if the file is a 64-bit ELF file that contains all bytes of its segments and of its section table. The loader
/// of a truncated file maps pages that do not exist, and the process ends with SIGBUS.
bool is_whole_object(const std::string& path);

}  // namespace weft::jit
