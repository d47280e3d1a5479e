// Checks shared objects before they are loaded.
#pragma once
#include <string>

namespace weft::jit {

/// True if the file is a 64-bit ELF file that has all bytes of its segments and of its table of sections. Of a file
/// that was cut short the loader maps pages that do not exist: the process then ends with SIGBUS.
bool is_whole_object(const std::string& path);

}  // namespace weft::jit
