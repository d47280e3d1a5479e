#include "models/text/template/unicode.h"

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

namespace {

// Lower-case letters first to last, and the distance to their capitals. Step 2: pairs of capital and small letter.
struct Letters {
  uint32_t first, last;
  int32_t capital;
  uint32_t step = 1;
};
constexpr Letters kLetters[] = {
    {'a', 'z', -32},       {0xE0, 0xF6, -32},       {0xF8, 0xFE, -32},       {0x101, 0x12F, -1, 2},
    {0x133, 0x137, -1, 2}, {0x13A, 0x148, -1, 2},   {0x14B, 0x177, -1, 2},   {0x17A, 0x17E, -1, 2},
    {0x1CE, 0x1DC, -1, 2}, {0x1DF, 0x1EF, -1, 2},   {0x1F9, 0x21F, -1, 2},   {0x223, 0x233, -1, 2},
    {0x3AC, 0x3AC, -38},   {0x3AD, 0x3AF, -37},     {0x3B1, 0x3C1, -32},     {0x3C3, 0x3CB, -32},
    {0x3CC, 0x3CC, -64},   {0x3CD, 0x3CE, -63},     {0x430, 0x44F, -32},     {0x450, 0x45F, -80},
    {0x461, 0x481, -1, 2}, {0x48B, 0x4BF, -1, 2},   {0x4C2, 0x4CE, -1, 2},   {0x4D1, 0x52F, -1, 2},
    {0x561, 0x586, -48},   {0x1E01, 0x1E95, -1, 2}, {0x1EA1, 0x1EFF, -1, 2},
};

}  // namespace

uint32_t to_upper(uint32_t c) {
  for (const Letters& l : kLetters)
    if (c >= l.first && c <= l.last && (c - l.first) % l.step == 0) return c + l.capital;
  return c == 0xFF ? 0x178 : c;
}

uint32_t to_lower(uint32_t c) {
  for (const Letters& l : kLetters) {
    const uint32_t small = c - l.capital;
    if (small >= l.first && small <= l.last && (small - l.first) % l.step == 0) return small;
  }
  return c == 0x178 ? 0xFF : c;
}

}  // namespace weft::text::jinja
