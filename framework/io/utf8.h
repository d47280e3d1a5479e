// UTF-8, the encoding of texts in JSON, and its code points.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::io {

/// The length in bytes of the UTF-8 character at the beginning of a text; 0 if there is none.
size_t utf8_length(std::string_view text);
/// The length of the longest prefix that is ASCII.
size_t ascii_length(std::string_view text);
/// The length of the longest prefix that is valid UTF-8.
size_t valid_utf8_length(std::string_view text);
inline bool is_utf8(std::string_view text) { return valid_utf8_length(text) == text.size(); }

/// A code point and the length of its character in bytes.
struct CodePoint {
  uint32_t code;
  size_t size;
};

/// The code point at the beginning of valid UTF-8 that is not empty.
inline CodePoint code_point(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t c = at(0);
  if (c < 0x80) return {c, 1};
  if (c < 0xE0) return {(c & 0x1F) << 6 | (at(1) & 0x3F), 2};
  if (c < 0xF0) return {(c & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F), 3};
  return {(c & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F), 4};
}

/// The first and the last character of any bytes that are not empty. A byte that is part of no character is a character
/// of its own, U+FFFD.
inline CodePoint first_character(std::string_view text) {
  const bool valid = static_cast<signed char>(text[0]) >= 0 || utf8_length(text) > 0;
  return valid ? code_point(text) : CodePoint{0xFFFD, 1};
}
CodePoint last_character(std::string_view text);

/// Appends the character of a code point.
void append_character(std::string& text, uint32_t code);

/// The length of the longest prefix or suffix in which is(code) holds for all characters.
template <class Is>
size_t leading(std::string_view text, const Is& is) {
  size_t n = 0;
  while (n < text.size()) {
    const CodePoint c = first_character(text.substr(n));
    if (!is(c.code)) break;
    n += c.size;
  }
  return n;
}
template <class Is>
size_t trailing(std::string_view text, const Is& is) {
  size_t n = text.size();
  while (n > 0) {
    const CodePoint c = last_character(text.substr(0, n));
    if (!is(c.code)) break;
    n -= c.size;
  }
  return text.size() - n;
}

}  // namespace weft::io
