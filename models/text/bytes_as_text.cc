#include "models/text/bytes_as_text.h"

#include <algorithm>
#include <array>

#include "framework/io/utf8.h"

namespace weft::text {
namespace {

/// GPT-2's table: printable characters of Latin-1 are themselves, the other bytes are U+0100 and on.
struct ByteTable {
  std::array<int16_t, 0x144> byte{};
  constexpr ByteTable() {
    for (int16_t& b : byte) b = -1;
    size_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      byte[printable ? static_cast<size_t>(b) : next++] = static_cast<int16_t>(b);
    }
  }
};
constexpr ByteTable kBytes;

}  // namespace

std::optional<std::string> bytes_of_text(std::string_view token) {
  std::string out;
  while (!token.empty()) {
    const io::CodePoint c = io::first_character(token);
    if (c.code >= kBytes.byte.size() || kBytes.byte[c.code] < 0) return std::nullopt;
    out += static_cast<char>(kBytes.byte[c.code]);
    token.remove_prefix(c.size);
  }
  return out;
}

std::string text_of_byte(unsigned char byte) {
  std::string out;
  const auto at = std::find(kBytes.byte.begin(), kBytes.byte.end(), byte);
  io::append_character(out, static_cast<uint32_t>(at - kBytes.byte.begin()));
  return out;
}

int fallback_byte(std::string_view t) {
  if (t.size() != 6 || !t.starts_with("<0x") || t[5] != '>') return -1;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  const int high = digit(t[3]), low = digit(t[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace weft::text
