// The styles of a chart's series, by number: neighbours differ in shape and in colour.
#pragma once
#include <string>
#include <string_view>

namespace weft::draw {

/// A text inside an element or attribute of SVG or HTML.
std::string escape(std::string_view text);

struct LineStyle {
  std::string stroke;  // attributes: colour, width and dashes
  std::string colour;
  size_t shape = 0;
  /// An SVG element: the mark of a value at a place in pixels.
  std::string mark_at(double x, double y) const;
};
LineStyle line_style(size_t series);

/// Attributes of bar, area or span `k`; they need fill_patterns() in the same document.
std::string fill_style(size_t k);
std::string fill_patterns();

}  // namespace weft::draw
