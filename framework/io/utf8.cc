#include "framework/io/utf8.h"

#include <cstdint>

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

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t n = utf8_length(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

}  // namespace weft::io
