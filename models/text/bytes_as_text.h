// The characters that byte-level vocabularies write for bytes, and UTF-8 by code points.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::text {

/// The code point at the beginning of valid UTF-8, and its length.
struct CodePoint {
  uint32_t code;
  size_t size;
};
inline CodePoint code_point(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t c = at(0);
  if (c < 0x80) return {c, 1};
  if (c < 0xE0) return {(c & 0x1F) << 6 | (at(1) & 0x3F), 2};
  if (c < 0xF0) return {(c & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F), 3};
  return {(c & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F), 4};
}

/// The bytes of a token of a byte-level vocabulary; nothing if a character stands for no byte.
std::optional<std::string> bytes_of_text(std::string_view token);
/// The byte of a token "<0xE2>"; -1 for any other token.
int fallback_byte(std::string_view token);

/// The length of the prefix that is ASCII.
size_t ascii_length(std::string_view text);
/// The length of the longest prefix that is valid UTF-8.
size_t valid_length(std::string_view text);

}  // namespace weft::text
