// Charts: positions, ticks, series that differ without colour, and rejected values.
#include "tools/draw/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <set>

#include "framework/base/testing/error_of.h"
#include "tools/draw/marks.h"

namespace weft::draw {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Every element that opens also closes, in order.
void expect_nests(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != svg.npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, svg.npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(tag[0] == '/', tag.find(' ') - (tag[0] == '/'));
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), name);
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
}

const Axis kTen{.label = "x", .from = 0, .to = 10};

TEST(Chart, TicksAreRoundNumbers) {
  EXPECT_EQ(ticks_of(kTen), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks_of({.label = "", .from = 1, .to = 64, .base = 2}), (std::vector<double>{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(ticks_of({.label = "", .from = 3, .to = 60, .base = 10}), (std::vector<double>{5, 10, 20, 50}));
  EXPECT_LE(ticks_of({.label = "", .from = 1, .to = 1e30, .base = 2}).size(), 14u);
}

TEST(Chart, PutsValuesBetweenTheEndsOfTheAxes) {
  Chart linear("t", kTen, kTen, {.width = 400, .height = 200, .left = 50, .legend = 30});
  linear.line(std::vector<Point>{{0, 0}, {10, 10}, {5, 5}}, "a");
  EXPECT_NE(svg({&linear, 1}).find("50.0,156.0 350.0,40.0 200.0,98.0"), std::string::npos) << svg({&linear, 1});
  const Axis log{.label = "", .from = 1, .to = 100, .base = 10};
  Chart both("t", log, log, {.width = 400, .height = 200, .left = 50, .legend = 30});
  both.limit(std::vector<Point>{{1, 1}, {10, 10}, {100, 100}}, "");
  EXPECT_NE(svg({&both, 1}).find("50.0,156.0 200.0,98.0 350.0,40.0"), std::string::npos) << svg({&both, 1});
}

TEST(Chart, SeriesDifferInShapeNotOnlyInColour) {
  auto without_colour = [](std::string s) {
    for (size_t at = s.find('#'); at != s.npos; at = s.find('#')) s.erase(at, 7);
    return s;
  };
  std::set<std::string> lines, fills;
  for (size_t k = 0; k < 8; ++k) {
    const LineStyle style = line_style(k);
    lines.insert(without_colour(style.stroke + style.mark_at(0, 0)));
    fills.insert(fill_style(k));
  }
  EXPECT_EQ(lines.size(), 8u);
  EXPECT_EQ(fills.size(), 8u);
}

TEST(Chart, HasALegendTitleAndUnits) {
  Chart c("Bars & areas", x_names({"one", "two"}), {.label = "MB", .from = 0, .to = 4});
  const std::vector<std::string> labels{"<a>", "b"};
  c.bars(labels, std::vector<Bar>{{0, {{0, 1}, {1, 2}}}, {1, {{1, 3}}}}, 0.5);
  const std::string s = svg({&c, 1});
  for (const char* part : {"Bars &amp; areas", ">&lt;a&gt;<", ">b<", ">MB<", ">one<", ">two<"})
    EXPECT_NE(s.find(part), std::string::npos) << part;
  EXPECT_EQ(count(s, "<rect x=") - 2, 3);  // three bars; the legend has two
  expect_nests(s);
}

TEST(Chart, AreasAreOnTopOfEachOther) {
  Chart c("t", {.label = "", .from = 0, .to = 3}, {.label = "", .from = 0, .to = 4},
          {.width = 400, .height = 200, .left = 50, .legend = 30});
  const std::vector<std::string> labels{"a", "b"};
  c.areas(std::vector<double>{0, 1, 2, 3}, labels, {{1, 1, 2}, {1, 1, 0}});
  const std::string s = svg({&c, 1});
  // The first from 0 up, with one step; the second on it, from 2 to 2.
  EXPECT_NE(s.find("50.0,127.0 250.0,127.0 250.0,98.0 350.0,98.0 350.0,156.0 50.0,156.0"), std::string::npos) << s;
  EXPECT_NE(s.find("50.0,98.0 350.0,98.0 350.0,98.0 250.0,98.0 250.0,127.0 50.0,127.0"), std::string::npos) << s;
  expect_nests(s);
}

TEST(Chart, SpansAreRowsFromTheTop) {
  Chart c("t", kTen, y_names({"first", "second"}), {.width = 400, .height = 204, .left = 50, .legend = 30});
  const std::vector<std::string> labels{"a"};
  c.spans(labels, std::vector<Span>{{0, 0, 5, 0}, {1, 5, 10, 0}});
  const std::string s = svg({&c, 1});
  EXPECT_NE(s.find("<rect x=\"50.0\" y=\"49.0\" width=\"150.0\" height=\"42.0\""), std::string::npos) << s;
  EXPECT_NE(s.find("<rect x=\"200.0\" y=\"109.0\" width=\"150.0\" height=\"42.0\""), std::string::npos) << s;
}

TEST(Chart, SpansHaveTextsThatFit) {
  Chart c("t", kTen, y_names({"row"}), {.width = 400, .height = 204, .left = 50, .legend = 30});
  const std::vector<std::string> labels{"a"};
  c.spans(labels, std::vector<Span>{{0, 0, 5, 0, "wide"}, {0, 5, 5.2, 0, "narrow"}});
  const std::string s = svg({&c, 1});
  EXPECT_NE(s.find("<text x=\"125.0\""), std::string::npos) << s;
  EXPECT_NE(s.find(">wide<"), std::string::npos);
  EXPECT_EQ(s.find(">narrow<"), std::string::npos);
}

TEST(Chart, EstimatesHaveErrorBarsInsideTheAxes) {
  Chart c("t", kTen, kTen, {.width = 400, .height = 200, .left = 50, .legend = 30});
  c.estimates(std::vector<Point>{{5, 5}, {10, 9}}, std::vector<double>{2.5, 4}, "e");
  const std::string s = svg({&c, 1});
  EXPECT_NE(s.find("M200.0 69.0 V127.0"), std::string::npos) << s;
  EXPECT_NE(s.find("M350.0 40.0 V98.0"), std::string::npos) << s;  // up to 10, not to 13
  EXPECT_NE(testing::error_of([&] { c.estimates(std::vector<Point>{{5, 5}}, std::vector<double>{1, 2}, ""); }), "");
  expect_nests(s);
}

TEST(Chart, NotesOfNearPointsDoNotOverlap) {
  Chart chart("t", {.from = 0, .to = 100}, {.from = 0, .to = 100});
  std::vector<Point> points;
  for (int i = 0; i < 12; ++i) points.push_back({50 + 0.1 * i, 50 - 0.1 * i});
  points.push_back({100, 100});  // in the corner
  points.push_back({10, 90});
  chart.dots(points, "d");
  for (size_t i = 0; i < points.size(); ++i) chart.note(points[i], str_cat("n", 10 + i));
  const std::string text = svg({&chart, 1});
  std::vector<std::pair<double, double>> places;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t end = text.find(str_cat(">n", 10 + i, "<")), begin = text.rfind("<text x=", end);
    double x = 0, y = 0;
    ASSERT_EQ(std::sscanf(text.c_str() + begin, "<text x=\"%lf\" y=\"%lf\"", &x, &y), 2);
    for (const auto& [ox, oy] : places)
      EXPECT_TRUE(std::abs(x - ox) >= 19 || std::abs(y - oy) >= 9) << "note " << i << " is at " << x << ", " << y;
    places.emplace_back(x, y);
  }
  EXPECT_GT(count(text, "stroke=\"#333333\" stroke-width=\"0.6\"/>"), 0);  // lines to notes
  expect_nests(text);
  EXPECT_LT(places[12].first, 550 - 19);  // the right end of the axis
}

TEST(Chart, RefusesWhatItCannotDraw) {
  const auto refused = [](auto&& draw) { return testing::error_of(draw); };
  EXPECT_NE(refused([] { Chart("t", {.label = "", .from = 0, .to = 1, .base = 10}, kTen); }).find("need ends above 0"),
            std::string::npos);
  EXPECT_NE(refused([] { Chart("t", {.label = "", .from = 0, .to = NAN}, kTen); }).find("finite"), std::string::npos);
  Chart c("t", {.label = "", .from = 1, .to = 10, .base = 10}, kTen);
  EXPECT_NE(refused([&] { c.dots(std::vector<Point>{{0, 1}}, ""); }).find("above 0"), std::string::npos);
  EXPECT_NE(refused([&] { c.line(std::vector<Point>{{1, INFINITY}}, ""); }).find("finite"), std::string::npos);
  // A single value is an axis too.
  Chart("t", {.label = "", .from = 5, .to = 5}, {.label = "", .from = 0, .to = 0}).line(std::vector<Point>{{5, 0}}, "");
}

}  // namespace
}  // namespace weft::draw
