#include "tools/draw/chart.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "tools/draw/marks.h"

namespace weft::draw {
namespace {

constexpr double kTop = 40, kBottom = 44, kRight = 20, kLegendRow = 16;
constexpr double kLetter = 6.4;      // the width of a letter, about
constexpr double kMark = 4;          // half of the width of a mark
constexpr size_t kMostMarks = 40;    // a line of more points, or of two points, has no marks
constexpr double kLeastSpan = 1e-9;  // smallest span of an axis, relative to its ends
constexpr const char *kAxis = "#444444", *kGrid = "#dddddd", *kLimit = "#333333";

std::string number(double v) { return formatted("%.1f", v); }

std::string tick_text(double v) { return formatted("%g", v); }

// At most `width` pixels of a text.
std::string shortened(std::string_view text, double width) {
  const auto most = static_cast<size_t>(std::max(width / kLetter, 2.0));
  size_t letters = 0, end = 0, cut = 0;
  for (; end < text.size(); ++end) {
    if ((text[end] & 0xC0) == 0x80) continue;  // not the first byte of a letter
    if (++letters == most) cut = end;
  }
  return letters <= most ? std::string(text) : str_cat(std::string(text.substr(0, cut)), "…");
}

double position(const Axis& a, double v, double begin, double end) {
  auto at = [&](double t) { return a.base > 0 ? std::log(t) : t; };
  return begin + (end - begin) * (at(v) - at(a.from)) / (at(a.to) - at(a.from));
}

// Ends that differ, so that positions are finite.
void settle(Axis& a, const char* which) {
  WEFT_CHECK(std::isfinite(a.from) && std::isfinite(a.to), "chart: the ", which, " axis is from ", a.from, " to ", a.to,
             "; need finite ends");
  WEFT_CHECK(a.base == 0 || (a.base > 1 && std::isfinite(a.base)), "chart: the base of the ", which, " axis is ",
             a.base, "; need 0 (linear) or a number above 1");
  WEFT_CHECK(a.base == 0 || (a.from > 0 && a.to > 0), "chart: the logarithmic ", which, " axis is from ", a.from,
             " to ", a.to, "; need ends above 0");
  const double least = kLeastSpan * std::max(std::abs(a.from), std::abs(a.to));
  if (std::abs(a.to - a.from) > least) return;
  a.to = a.base > 0 ? a.from * a.base : a.from + std::max(1.0, std::abs(a.from));
}

std::vector<double> linear_ticks(double lo, double hi) {
  const double raw = (hi - lo) / 6, power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (double m : {5.0, 2.0, 1.0})
    if (m * power >= raw * 0.999) step = m * power;
  std::vector<double> ticks;
  for (double i = std::ceil(lo / step - 1e-9); i <= std::floor(hi / step + 1e-9); ++i)
    ticks.push_back(i * step + 0.0);  // not -0
  return ticks;
}

std::vector<double> log_ticks(double lo, double hi, double base) {
  const double first = std::floor(std::log(lo) / std::log(base)), last = std::ceil(std::log(hi) / std::log(base));
  const double stride = std::max(1.0, std::ceil((last - first) / 12));
  std::vector<double> ticks;
  for (double power = first; power <= last; power += stride)
    for (double m : {1.0, 2.0, 5.0}) {
      if (m > 1 && (base != 10 || last - first > 4)) break;
      const double t = m * std::pow(base, power);
      if (t >= lo * (1 - 1e-9) && t <= hi * (1 + 1e-9)) ticks.push_back(t);
    }
  return ticks;
}

}  // namespace

Axis x_names(std::vector<std::string> names, std::string label) {
  const double count = static_cast<double>(names.size());
  return {.label = std::move(label), .from = -0.6, .to = count - 0.4, .names = std::move(names)};
}

Axis y_names(std::vector<std::string> names) {
  const double count = static_cast<double>(names.size());
  return {.label = "", .from = count - 0.5, .to = -0.5, .names = std::move(names)};
}

std::vector<double> ticks_of(const Axis& a) {
  const double lo = std::min(a.from, a.to), hi = std::max(a.from, a.to);
  return a.base > 0 ? log_ticks(lo, hi, a.base) : linear_ticks(lo, hi);
}

Chart::Chart(std::string title, Axis x, Axis y, Layout layout)
    : x_(std::move(x)),
      y_(std::move(y)),
      layout_(layout),
      right_(layout.width - kRight - layout.legend),
      low_(layout.height - kBottom),
      high_(kTop),
      title_(std::move(title)) {
  settle(x_, "x");
  settle(y_, "y");
  draw_axes();
}

double Chart::px(double x) const { return position(x_, x, layout_.left, right_); }
double Chart::py(double y) const { return position(y_, y, low_, high_); }

void Chart::check(double x, double y) const {
  WEFT_CHECK(std::isfinite(x) && std::isfinite(y), "chart: a value is (", x, ", ", y, "); need finite values");
  WEFT_CHECK((x_.base == 0 || x > 0) && (y_.base == 0 || y > 0), "chart: a value is (", x, ", ", y,
             "); need values above 0 on a logarithmic axis");
}

std::string Chart::path(std::span<const Point> points) const {
  std::string s;
  for (const Point& p : points) {
    check(p.x, p.y);
    s += str_cat(s.empty() ? "" : " ", number(px(p.x)), ",", number(py(p.y)));
  }
  return s;
}

void Chart::text(double x, double y, std::string_view text, std::string_view attributes) {
  body_ += str_cat("<text x=\"", number(x), "\" y=\"", number(y), "\" ", attributes, ">", escape(text), "</text>");
}

void Chart::draw_axes() {
  auto rule = [&](double x0, double x1, double y0, double y1, const char* colour) {
    body_ += str_cat("<line x1=\"", number(x0), "\" x2=\"", number(x1), "\" y1=\"", number(y0), "\" y2=\"", number(y1),
                     "\" stroke=\"", colour, "\"/>");
  };
  text(layout_.left, 24, shortened(title_, layout_.width - layout_.left - kRight), "font-weight=\"bold\"");
  for (size_t i = 0; i < y_.names.size(); ++i)
    text(layout_.left - 8, py(static_cast<double>(i)) + 4, shortened(y_.names[i], layout_.left - 12),
         "text-anchor=\"end\"");
  if (y_.names.empty())
    for (double t : ticks_of(y_)) {
      rule(layout_.left, right_, py(t), py(t), kGrid);
      text(layout_.left - 8, py(t) + 4, tick_text(t), "text-anchor=\"end\"");
    }
  for (size_t i = 0; i < x_.names.size(); ++i)
    text(px(static_cast<double>(i)), low_ + 18, x_.names[i], "text-anchor=\"middle\"");
  if (x_.names.empty())
    for (double t : ticks_of(x_)) {
      rule(px(t), px(t), low_, low_ + 4, kAxis);
      text(px(t), low_ + 18, tick_text(t), "text-anchor=\"middle\"");
    }
  rule(layout_.left, right_, low_, low_, kAxis);
  rule(layout_.left, layout_.left, low_, high_, kAxis);
  text((layout_.left + right_) / 2, low_ + 36, x_.label, "text-anchor=\"middle\"");
  const std::string middle = number((low_ + high_) / 2);
  if (!y_.label.empty())
    text(14, (low_ + high_) / 2, y_.label, str_cat("text-anchor=\"middle\" transform=\"rotate(-90 14 ", middle, ")\""));
}

void Chart::legend(std::string mark, std::string_view label) {
  const double x = right_ + 12, y = kTop + 6 + kLegendRow * static_cast<double>(legend_rows_++);
  body_ += str_cat("<g transform=\"translate(", number(x), " ", number(y), ")\"><title>", escape(label), "</title>",
                   mark, "</g>");
  text(x + 26, y + 4, shortened(label, layout_.legend - 38));
}

void Chart::remark(std::string_view remark) {
  const double x = right_ + 12, y = kTop + 6 + kLegendRow * static_cast<double>(legend_rows_++);
  text(x, y + 4, shortened(remark, layout_.legend - 12), "fill=\"#333333\"");
}

void Chart::line(std::span<const Point> points, const std::string& label) {
  const LineStyle style = line_style(series_++);
  const bool marks = points.size() != 2 && points.size() <= kMostMarks;
  body_ += str_cat("<polyline points=\"", path(points), "\" fill=\"none\" ", style.stroke, "/>");
  for (size_t i = 0; marks && i < points.size(); ++i) body_ += style.mark_at(px(points[i].x), py(points[i].y));
  legend(str_cat("<line x1=\"0\" x2=\"22\" y1=\"0\" y2=\"0\" ", style.stroke, "/>",
                 marks ? style.mark_at(11, 0) : std::string()),
         label);
}

void Chart::limit(std::span<const Point> points, const std::string& label) {
  const std::string stroke = str_cat("stroke=\"", kLimit, "\" stroke-width=\"1.2\" stroke-dasharray=\"3 3\"");
  body_ += str_cat("<polyline points=\"", path(points), "\" fill=\"none\" ", stroke, "/>");
  if (!label.empty()) legend(str_cat("<line x1=\"0\" x2=\"22\" y1=\"0\" y2=\"0\" ", stroke, "/>"), label);
}

void Chart::dots(std::span<const Point> points, const std::string& label) { estimates(points, {}, label); }

void Chart::estimates(std::span<const Point> points, std::span<const double> errors, const std::string& label) {
  WEFT_CHECK(errors.empty() || errors.size() == points.size(), "chart: got ", errors.size(), " errors of ",
             points.size(), " dots; need one error for each dot, or none");
  const LineStyle style = line_style(series_++);
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& p = points[i];
    check(p.x, p.y);
    if (!errors.empty()) {
      check(p.x, p.y + errors[i]);
      const auto inside = [&](double y) { return std::clamp(y, std::min(y_.from, y_.to), std::max(y_.from, y_.to)); };
      const std::string x0 = number(px(p.x) - kMark), x1 = number(px(p.x) + kMark), middle = number(px(p.x)),
                        top = number(py(inside(p.y + errors[i]))), end = number(py(inside(p.y - errors[i])));
      body_ += str_cat("<path d=\"M", middle, " ", top, " V", end, " M", x0, " ", top, " H", x1, " M", x0, " ", end,
                       " H", x1, "\" stroke=\"", style.colour, "\" fill=\"none\"/>");
    }
    body_ += style.mark_at(px(p.x), py(p.y));
    dots_.push_back({px(p.x), py(p.y)});
    taken_.push_back({px(p.x) - kMark, py(p.y) - kMark, px(p.x) + kMark, py(p.y) + kMark});
  }
  legend(style.mark_at(11, 0), label);
}

void Chart::rectangle(double x0, double x1, double y0, double y1, size_t fill, std::string_view title) {
  check(x0, y0);
  check(x1, y1);
  const double left = std::min(px(x0), px(x1)), top = std::min(py(y0), py(y1));
  body_ += str_cat("<rect x=\"", number(left), "\" y=\"", number(top), "\" width=\"",
                   number(std::max(std::abs(px(x1) - px(x0)), 0.5)), "\" height=\"", number(std::abs(py(y1) - py(y0))),
                   "\" ", fill_style(fill), title.empty() ? "/>" : ">");
  if (!title.empty()) body_ += str_cat("<title>", escape(title), "</title></rect>");
}

void Chart::fill_legend(std::span<const std::string> labels) {
  for (size_t k = 0; k < labels.size(); ++k)
    legend(str_cat("<rect x=\"3\" y=\"-6\" width=\"16\" height=\"12\" ", fill_style(fills_ + k), "/>"), labels[k]);
  fills_ += labels.size();
}

void Chart::bars(std::span<const std::string> labels, std::span<const Bar> bars, double width) {
  for (const Bar& b : bars) {
    double base = 0;
    for (const auto& [label, value] : b.parts) {
      WEFT_CHECK(label < labels.size(), "chart: a bar has label ", label, "; need a number below ", labels.size());
      rectangle(b.at - width / 2, b.at + width / 2, base, base + value, fills_ + label);
      base += value;
    }
  }
  fill_legend(labels);
}

void Chart::areas(std::span<const double> x, std::span<const std::string> labels,
                  const std::vector<std::vector<double>>& heights) {
  const size_t n = x.empty() ? 0 : x.size() - 1;
  std::vector<double> below(n);
  for (size_t k = 0; k < labels.size(); ++k) {
    WEFT_CHECK(k < heights.size() && heights[k].size() == n, "chart: area ", k, " needs ", n, " heights");
    std::vector<double> top(n);
    for (size_t i = 0; i < n; ++i) top[i] = below[i] + heights[k][i];
    // Along the top to the right, and along the bottom back; steps of equal height are one.
    std::vector<Point> edge;
    auto along = [&](const std::vector<double>& y, bool back) {
      for (size_t j = 0; j < n; ++j) {
        const size_t i = back ? n - 1 - j : j;
        const Point from{x[back ? i + 1 : i], y[i]}, to{x[back ? i : i + 1], y[i]};
        if (j > 0 && edge.back().y == from.y) {
          edge.back() = to;
        } else {
          edge.push_back(from);
          edge.push_back(to);
        }
      }
    };
    along(top, false);
    along(below, true);
    body_ += str_cat("<polygon points=\"", path(edge), "\" ", fill_style(fills_ + k), "/>");
    below = std::move(top);
  }
  fill_legend(labels);
}

void Chart::spans(std::span<const std::string> labels, std::span<const Span> spans) {
  for (const Span& s : spans) {
    WEFT_CHECK(s.label < labels.size(), "chart: a span has label ", s.label, "; need a number below ", labels.size());
    const double row = static_cast<double>(s.row);
    rectangle(s.from, s.to, row - 0.35, row + 0.35, fills_ + s.label, s.title);
    if (!s.text.empty() && kLetter * static_cast<double>(s.text.size()) <= std::abs(px(s.to) - px(s.from)))
      text(px((s.from + s.to) / 2), py(row) + 4, s.text,
           "font-size=\"11\" text-anchor=\"middle\" stroke=\"white\" stroke-width=\"3\" paint-order=\"stroke\"");
  }
  fill_legend(labels);
}

void Chart::note(Point at, std::string_view note) {
  check(at.x, at.y);
  constexpr double kNear = 6, kHeight = 9;  // kHeight: height of digits and capitals
  constexpr double kAway[] = {kNear, 14, 24, 36, 50, 66};
  constexpr std::pair<int, int> kDirections[] = {{1, -1}, {1, 0}, {1, 1}, {0, -1}, {0, 1}, {-1, -1}, {-1, 0}, {-1, 1}};
  const double x = px(at.x), y = py(at.y), width = kLetter * static_cast<double>(note.size());
  // The nearest free place inside the axes; else the first place.
  const auto placed = [&](double away, std::pair<int, int> to) -> PlotBox {
    const auto begin = [&](double middle, int side, double size) {
      return side > 0 ? middle + away : side < 0 ? middle - away - size : middle - size / 2;
    };
    const double x0 = begin(x, to.first, width), y0 = begin(y, to.second, kHeight);
    return {x0, y0, x0 + width, y0 + kHeight};
  };
  const auto is_free = [&](const PlotBox& b) {
    return b.x0 >= layout_.left && b.x1 <= right_ && b.y0 >= high_ && b.y1 <= low_ &&
           std::none_of(taken_.begin(), taken_.end(),
                        [&](const PlotBox& o) { return b.x0 < o.x1 && o.x0 < b.x1 && b.y0 < o.y1 && o.y0 < b.y1; });
  };
  // A note beside its point needs no line, unless it could belong to another dot.
  const auto is_clear = [&](const PlotBox& b) {
    return std::none_of(dots_.begin(), dots_.end(), [&](const Point& d) {
      const double dx = d.x - std::clamp(d.x, b.x0, b.x1), dy = d.y - std::clamp(d.y, b.y0, b.y1);
      return std::hypot(d.x - x, d.y - y) > 1 && std::hypot(dx, dy) < 2 * kNear;
    });
  };
  PlotBox box = placed(kNear, kDirections[0]);
  [&] {
    for (const double away : kAway)
      for (const auto& to : kDirections) {
        const PlotBox b = placed(away, to);
        if (!is_free(b) || (away == kNear && !is_clear(b))) continue;
        box = b;
        if (away == kNear) return;
        body_ +=
            str_cat("<line x1=\"", number(x), "\" x2=\"", number(std::clamp(x, b.x0, b.x1)), "\" y1=\"", number(y),
                    "\" y2=\"", number(std::clamp(y, b.y0, b.y1)), "\" stroke=\"", kLimit, "\" stroke-width=\"0.6\"/>");
        return;
      }
  }();
  taken_.push_back(box);
  text(box.x0, box.y1, note, "font-size=\"11\" stroke=\"white\" stroke-width=\"3\" paint-order=\"stroke\"");
}

std::string svg(std::span<const Chart> panels) {
  double width = 0, height = 0;
  std::string body;
  for (const Chart& c : panels) {
    body += str_cat("<g transform=\"translate(0 ", number(height), ")\">", c.body_, "</g>");
    width = std::max(width, c.layout_.width);
    height += c.layout_.height;
  }
  const std::string size = str_cat(number(width), " ", number(height));
  return str_cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(width), "\" height=\"", number(height),
                 "\" viewBox=\"0 0 ", size, "\" font-family=\"sans-serif\" font-size=\"12\">", fill_patterns(),
                 "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>", body, "</svg>\n");
}

}  // namespace weft::draw
