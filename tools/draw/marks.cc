#include "tools/draw/marks.h"

#include <algorithm>

#include "framework/base/str_cat.h"

namespace weft::draw {
namespace {

constexpr const char* kColours[] = {"#3b6ea5", "#d95f02", "#3f8f3a", "#c43c3c",
                                    "#2b9a93", "#8e5a9b", "#7d5a45", "#6b6b6b"};
constexpr const char* kDashes[] = {"", "7 4", "2 3", "10 3 2 3", "14 4"};
constexpr size_t kShapes = 7;

// Fills differ in lightness and in pattern: a colour, and the lines or dots on it.
struct FillStyle {
  const char *colour, *pattern;
};
constexpr FillStyle kFills[] = {
    {"#3b6ea5", ""},
    {"#fbd19b", "<path d=\"M-2 2 L2 -2 M0 8 L8 0 M6 10 L10 6\" stroke=\"#9c5a12\"/>"},
    {"#3f7d3a",
     "<circle cx=\"2\" cy=\"2\" r=\"1.2\" fill=\"#ffffff\"/><circle cx=\"6\" cy=\"6\" r=\"1.2\" "
     "fill=\"#ffffff\"/>"},
    {"#f6c6c6", "<path d=\"M0 2 H8 M0 6 H8\" stroke=\"#a03030\"/>"},
    {"#20364d", "<path d=\"M-2 6 L2 10 M0 0 L8 8 M6 -2 L10 2\" stroke=\"#a9c3dd\"/>"},
    {"#d6ecea", "<path d=\"M2 0 V8 M6 0 V8\" stroke=\"#2b7f79\"/>"},
    {"#a98467", "<path d=\"M0 0 L8 8 M0 8 L8 0\" stroke=\"#3f2d20\"/>"},
    {"#e4e4e4", ""},
    {"#b497bd", "<path d=\"M0 4 H8 M4 0 V8\" stroke=\"#ffffff\"/>"},
};

// The length of the first character in bytes; 0: no UTF-8, or a character that XML does not allow.
size_t character(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || s.size() < bytes) return 0;
  uint32_t code = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool none =
      code < kLeast[bytes] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff || code == 0xfffe || code == 0xffff;
  return none ? 0 : bytes;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string s;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = character(text.substr(i));
    const std::string_view c = text.substr(i, std::max<size_t>(bytes, 1));
    i += c.size();
    if (bytes == 0) {
      s += "\uFFFD";
    } else if (c == "<") {
      s += "&lt;";
    } else if (c == ">") {
      s += "&gt;";
    } else if (c == "&") {
      s += "&amp;";
    } else if (c == "\"") {
      s += "&quot;";
    } else if (static_cast<unsigned char>(c[0]) < 0x20) {
      s += ' ';
    } else {
      s += c;
    }
  }
  return s;
}

LineStyle line_style(size_t series) {
  const char* colour = kColours[series % std::size(kColours)];
  const std::string dash = kDashes[series % std::size(kDashes)];
  return {.stroke = str_cat("stroke=\"", colour, "\" stroke-width=\"1.8\"",
                            dash.empty() ? std::string() : str_cat(" stroke-dasharray=\"", dash, "\"")),
          .colour = colour,
          .shape = series % kShapes};
}

std::string LineStyle::mark_at(double x, double y) const {
  constexpr const char* kPaths[kShapes] = {
      "M-3.5 0 a3.5 3.5 0 1 0 7 0 a3.5 3.5 0 1 0 -7 0",  // circle
      "M-3.5 -3.5 H3.5 V3.5 H-3.5 Z",                    // square
      "M0 -4.5 L4.5 3.5 H-4.5 Z",                        // triangle
      "M0 -5 L5 0 L0 5 L-5 0 Z",                         // diamond
      "M-3.5 -3.5 L3.5 3.5 M-3.5 3.5 L3.5 -3.5",         // cross
      "M-3.5 0 a3.5 3.5 0 1 0 7 0 a3.5 3.5 0 1 0 -7 0",  // ring
      "M0 4.5 L4.5 -3.5 H-4.5 Z",                        // triangle, downwards
  };
  const bool open = shape == 4 || shape == 5;
  return str_cat("<path transform=\"", formatted("translate(%.1f %.1f)", x, y), "\" d=\"", kPaths[shape], "\" fill=\"",
                 shape == 5 ? "#ffffff" : colour, "\" stroke=\"", colour, "\" stroke-width=\"", open ? "1.8" : "0.6",
                 "\"/>");
}

std::string fill_style(size_t k) {
  return str_cat("fill=\"url(#fill", k % std::size(kFills), ")\" stroke=\"#333333\" stroke-width=\"0.4\"");
}

std::string fill_patterns() {
  std::string s = "<defs>";
  for (size_t k = 0; k < std::size(kFills); ++k)
    s += str_cat("<pattern id=\"fill", k,
                 "\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><rect width=\"8\" "
                 "height=\"8\" fill=\"",
                 kFills[k].colour, "\"/>", kFills[k].pattern, "</pattern>");
  return s + "</defs>";
}

}  // namespace weft::draw
