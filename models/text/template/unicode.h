// Characters of texts in UTF-8. A byte that begins no character is a character of its own, so that all bytes can pass.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "framework/io/utf8.h"

namespace weft::text::jinja {

/// The bytes of the first character of a text that is not empty.
inline size_t character_length(std::string_view text) {
  if (static_cast<signed char>(text[0]) >= 0) return 1;
  const size_t n = io::utf8_length(text);
  return n ? n : 1;
}

/// The bytes of the last character of a text that is not empty.
inline size_t last_character(std::string_view text) {
  for (size_t n = 2; n <= 4 && n <= text.size(); ++n)
    if (static_cast<signed char>(text.back()) < 0 && io::utf8_length(text.substr(text.size() - n)) == n) return n;
  return 1;
}

/// The number of characters.
size_t count_characters(std::string_view text);

/// The code point of one character; 0xFFFD for a byte that is none.
uint32_t code_point(std::string_view character);
void append_character(std::string& text, uint32_t code);

/// As str.isspace() of Python.
bool is_space(std::string_view character);

/// Another case of letters that have one: ASCII, Latin, Greek, Cyrillic and Armenian, one character for one.
uint32_t to_upper(uint32_t code);
uint32_t to_lower(uint32_t code);

}  // namespace weft::text::jinja
