// Charts as SVG text: lines, dots, bars, areas and spans over linear, logarithmic or named axes. Series differ in dash,
// mark or pattern as well as in colour, so that a chart can be read in grey. The background is light.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::draw {

struct Point {
  double x = 0, y = 0;
};

/// The values between two ends of the drawing. The label contains the unit.
struct Axis {
  std::string label;
  double from = 0, to = 1;
  double base = 0;                      // base of a logarithmic scale; 0: linear
  std::vector<std::string> names = {};  // names of the places 0, 1, ..., instead of numbers
};
/// An axis with one place for each name. On a y axis the first name is at the top.
Axis x_names(std::vector<std::string> names, std::string label = "");
Axis y_names(std::vector<std::string> names);

/// Multiples of 1, 2 or 5 times a power of ten, or powers of the base: about six values from axis.from to axis.to.
std::vector<double> ticks_of(const Axis& axis);

/// Pixels of the whole drawing, and the parts of its width for the labels of the y axis and for the legend.
struct Layout {
  double width = 760, height = 300, left = 70, legend = 190;
};

/// Parts from the bottom to the top: the number of a label and a height.
struct Bar {
  double at = 0;
  std::vector<std::pair<size_t, double>> parts;
};

/// A bar from left to right in a row of a chart with y_names; `label` is the number of a label. The text is in its
/// middle, if there is room; browsers show the title while the pointer is on it.
struct Span {
  size_t row = 0;
  double from = 0, to = 0;
  size_t label = 0;
  std::string text = {}, title = {};
};

/// One panel. All positions are values of its axes. Throws InvalidArgument for values that are not finite and, on a
/// logarithmic axis, not above 0.
class Chart {
 public:
  Chart(std::string title, Axis x, Axis y, Layout layout = {});

  void line(std::span<const Point> points, const std::string& label);
  /// A thin dashed line: a bound for comparison. A limit without a label is not in the legend.
  void limit(std::span<const Point> points, const std::string& label);
  void dots(std::span<const Point> points, const std::string& label);
  /// Dots with a bar from y - error to y + error through each; no errors: no bars.
  void estimates(std::span<const Point> points, std::span<const double> errors, const std::string& label);
  void bars(std::span<const std::string> labels, std::span<const Bar> bars, double width);
  /// Areas on top of each other, the first at the bottom; heights[k][i] lasts from x[i] to x[i + 1].
  void areas(std::span<const double> x, std::span<const std::string> labels,
             const std::vector<std::vector<double>>& heights);
  void spans(std::span<const std::string> labels, std::span<const Span> spans);
  /// A short text beside a point, to the right of it if there is room. Near existing dots and notes, it is farther
  /// away, and a line leads to it.
  void note(Point at, std::string_view text);
  /// A line of text below the legend so far.
  void remark(std::string_view text);

 private:
  struct PlotBox {
    double x0, y0, x1, y1;
  };
  friend std::string svg(std::span<const Chart>);
  double px(double x) const;
  double py(double y) const;
  std::string path(std::span<const Point> points) const;
  void text(double x, double y, std::string_view text, std::string_view attributes = "");
  void draw_axes();
  void legend(std::string mark, std::string_view label);
  void fill_legend(std::span<const std::string> labels);
  void rectangle(double x0, double x1, double y0, double y1, size_t fill, std::string_view title = {});
  void check(double x, double y) const;

  Axis x_, y_;
  Layout layout_;
  double right_, low_, high_;  // ends of the axes
  std::string title_, body_;
  std::vector<Point> dots_;     // in pixels
  std::vector<PlotBox> taken_;  // in pixels: dots and notes
  size_t series_ = 0, fills_ = 0, legend_rows_ = 0;
};

/// An SVG with the panels one below the other.
std::string svg(std::span<const Chart> panels);

}  // namespace weft::draw
