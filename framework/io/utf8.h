// UTF-8, the encoding of texts in JSON.
#pragma once
#include <cstddef>
#include <string_view>

namespace weft::io {

/// The length in bytes of the UTF-8 character at the beginning of a text; 0 if there is none.
size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace weft::io
