// Characters of texts, as io::first_character() reads them: any bytes can pass.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::text::jinja {

/// The number of characters.
size_t count_characters(std::string_view text);

/// As str.isspace() of Python.
bool is_space(uint32_t code);

/// Another case of a letter that has one; one character. In Python the upper case of "ß" is "SS".
uint32_t to_upper(uint32_t code);
uint32_t to_lower(uint32_t code);

}  // namespace weft::text::jinja
