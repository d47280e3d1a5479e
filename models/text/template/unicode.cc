#include "models/text/template/unicode.h"

#include <utf8proc.h>

#include "framework/io/utf8.h"

namespace weft::text::jinja {

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) i += io::first_character(text.substr(i)).size;
  return count;
}

bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

uint32_t to_upper(uint32_t code) {
  if (code < 0x80) return code - 'a' < 26 ? code - 32 : code;
  return static_cast<uint32_t>(utf8proc_toupper(static_cast<int32_t>(code)));
}
uint32_t to_lower(uint32_t code) {
  if (code < 0x80) return code - 'A' < 26 ? code + 32 : code;
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(code)));
}

}  // namespace weft::text::jinja
