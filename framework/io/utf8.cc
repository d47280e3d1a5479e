#include "framework/io/utf8.h"

#include <cstring>

namespace weft::io {

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t first = at(0);
  const size_t n = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  if (n == 0 || n > text.size()) return 0;
  uint32_t code = n == 1 ? first : first & (0x7Fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if (at(i) >> 6 != 2) return 0;
    code = code << 6 | (at(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return code >= kLeast[n] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF) ? n : 0;
}

size_t ascii_length(std::string_view text) {
  size_t i = 0;
  for (uint64_t word; i + 8 <= text.size(); i += 8) {
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < text.size() && static_cast<signed char>(text[i]) >= 0) ++i;
  return i;
}

size_t valid_utf8_length(std::string_view text) {
  size_t i = 0;
  while (true) {
    i += ascii_length(text.substr(i));
    while (i < text.size() && static_cast<signed char>(text[i]) < 0) {
      const size_t n = utf8_length(text.substr(i));
      if (n == 0) return i;
      i += n;
    }
    if (i == text.size()) return i;
  }
}

CodePoint last_character(std::string_view text) {
  for (size_t n = 1; n <= 4 && n <= text.size(); ++n)
    if (const std::string_view end = text.substr(text.size() - n); utf8_length(end) == n) return code_point(end);
  return {0xFFFD, 1};
}

void append_character(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

}  // namespace weft::io
