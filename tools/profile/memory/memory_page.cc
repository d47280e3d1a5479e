#include <algorithm>

#include "tools/draw/chart.h"
#include "tools/draw/marks.h"
#include "tools/draw/page.h"
#include "tools/profile/memory/memory.h"
#include "tools/profile/pictures.h"
#include "tools/profile/table.h"

namespace weft::profiler {
namespace {

constexpr size_t kModules = 6;  // modules with an area of their own in the timeline
constexpr size_t kLargest = 10;

std::string mb_text(double bytes) { return fixed(bytes / 1e6, bytes < 1e6 ? 3 : 2); }

draw::Axis launch_axis(const StepRecord& r) {
  return {.label = "launch", .from = 0, .to = static_cast<double>(r.launches.size())};
}

draw::Chart timeline(const StepRecord& r) {
  const double peak = static_cast<double>(r.peak_bytes) / 1e6, at = r.peak_launch + 0.5;
  draw::Chart chart(str_cat("Memory during each launch: ", r.title.empty() ? "a step" : r.title), launch_axis(r),
                    {.label = "MB", .from = 0, .to = peak * 1.08}, {.width = 960, .height = 400, .legend = 250});
  std::vector<double> x(r.launches.size() + 1);
  for (size_t t = 0; t < x.size(); ++t) x[t] = static_cast<double>(t);
  std::vector<std::string> labels;
  std::vector<std::vector<double>> heights;
  for (MemorySeries& s : memory_timeline(r, kModules)) {
    if (std::all_of(s.bytes.begin(), s.bytes.end(), [](double b) { return b == 0; })) continue;
    for (double& b : s.bytes) b /= 1e6;
    labels.push_back(s.name);
    heights.push_back(std::move(s.bytes));
  }
  chart.areas(x, labels, heights);
  chart.limit(std::vector<draw::Point>{{0, peak}, {x.back(), peak}}, str_cat("peak: ", fixed(peak, 2), " MB"));
  if (r.peak_launch >= 0)
    chart.limit(std::vector<draw::Point>{{at, 0}, {at, peak}}, str_cat("most is live: launch ", r.peak_launch));
  return chart;
}

draw::Chart lives(const StepRecord& r, const MemoryUse& use) {
  const size_t count = std::min(use.holders.size(), kLargest);
  std::vector<std::string> names, homes;
  std::vector<draw::Span> spans;
  for (size_t i = 0; i < count; ++i) {
    const Holder& h = use.holders[i];
    names.push_back(str_cat(mb_text(static_cast<double>(h.bytes)), " MB ",
                            h.home == "cell" || h.module.empty() ? h.name : h.module, h.line.empty() ? "" : ", ",
                            h.line));
    size_t home = 0;
    while (home < homes.size() && homes[home] != h.home) ++home;
    if (home == homes.size()) homes.push_back(h.home);
    spans.push_back(
        {i, h.first < 0 ? 0.0 : h.first, h.first < 0 ? static_cast<double>(r.launches.size()) : h.last + 1.0, home});
  }
  draw::Chart chart(str_cat("The ", count, " largest at the peak, while they are needed"), launch_axis(r),
                    draw::y_names(names),
                    {.width = 960, .height = 84 + 26 * static_cast<double>(count), .left = 400, .legend = 120});
  chart.spans(homes, spans);
  return chart;
}

using PageLines = std::vector<std::vector<std::string>>;

std::string html_table(const std::string& title, const PageLines& lines) {
  std::string s = str_cat("<h2>", draw::escape(title), "</h2>\n<table>\n");
  for (size_t i = 0; i < lines.size(); ++i) {
    const char* cell = i == 0 ? "th" : "td";
    s += "<tr>";
    for (const std::string& text : lines[i]) s += str_cat("<", cell, ">", draw::escape(text), "</", cell, ">");
    s += "</tr>\n";
  }
  return s + "</table>\n";
}

PageLines sums(const MemoryUse& use, const char* what, std::string Holder::*part, int64_t all) {
  const int64_t peak = std::max<int64_t>(all, 1);
  PageLines lines{{"MB", "share", what}};
  for (const auto& [name, bytes] : bytes_by(use, part))
    lines.push_back({mb_text(static_cast<double>(bytes)),
                     percent(static_cast<double>(bytes) / static_cast<double>(peak)),
                     name.empty() ? str_cat("(no ", what, ")") : name});
  lines.push_back({mb_text(static_cast<double>(use.gaps)),
                   percent(static_cast<double>(use.gaps) / static_cast<double>(peak)), "(gaps between buffers)"});
  return lines;
}

}  // namespace

std::string memory_svg(const StepRecord& r) {
  const std::vector<draw::Chart> charts{timeline(r), lives(r, memory_of(r))};
  return draw::svg(charts);
}

std::string memory_html(const StepRecord& r) {
  const MemoryUse use = memory_of(r);
  const std::string title = str_cat("Memory of ", r.title.empty() ? "a step" : r.title);
  PageLines largest{{"MB", "what", "kernel or cell", "module", "line", "phase", "launches"}};
  for (size_t i = 0; i < std::min(use.holders.size(), kLargest); ++i) {
    const Holder& h = use.holders[i];
    largest.push_back({mb_text(static_cast<double>(h.bytes)), h.home, h.name, h.module, h.line, h.phase,
                       h.first < 0 ? "all" : str_cat(h.first, " to ", h.last)});
  }
  const double measured = static_cast<double>(r.measured_peak_bytes);
  const std::string body =
      str_cat("<h1>", draw::escape(title), "</h1>\n<p>The peak is ", mb_text(static_cast<double>(r.peak_bytes)), " MB",
              measured > 0 ? str_cat(" as planned, and ", mb_text(measured), " MB as measured by the allocator")
                           : std::string(" as planned; the step has not run"),
              ". It counts the step's own values, cells, constants and outputs; arguments belong to the caller.</p>\n",
              memory_svg(r), html_table(str_cat("The ", largest.size() - 1, " largest at the peak"), largest),
              html_table("At the peak by module", sums(use, "module", &Holder::module, r.peak_bytes)),
              html_table("At the peak by line", sums(use, "line", &Holder::line, r.peak_bytes)));
  return tools::make_document(draw::escape(title), body,
                              "body { max-width: 1000px; }\nth, td { text-align: left; }\n"
                              "td:first-child { text-align: right; }\n");
}

}  // namespace weft::profiler
