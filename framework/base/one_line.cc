#include "framework/base/one_line.h"

namespace weft {

std::string one_line(std::string_view text, size_t most) {
  constexpr char kHex[] = "0123456789abcdef";
  constexpr std::string_view kGap = " ... ";
  std::string out;
  for (char c : text) {
    if (static_cast<unsigned char>(c) >= 32 && c != 127) {
      out += c;
    } else if (c == '\n' || c == '\t') {
      out += c == '\n' ? "\\n" : "\\t";
    } else {
      out += {'\\', 'x', kHex[c >> 4 & 15], kHex[c & 15]};
    }
  }
  if (out.size() <= most) return out;
  const size_t kept = most > kGap.size() ? most - kGap.size() : 0, end = kept / 4;
  return out.substr(0, kept - end).append(kGap).append(out, out.size() - end);
}

}  // namespace weft
