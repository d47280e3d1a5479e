#include "tools/bench/report.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "framework/base/thread_pool.h"
#include "framework/dispatch/rank/flight.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "tools/doctor/facts.h"
#include "tools/doctor/machine.h"
#include "tools/profile/table.h"

namespace weft::bench {
namespace {

// Four significant digits, below 1e15 without an exponent.
std::string number(double v) {
  if (std::isnan(v)) return "";
  return profiler::fixed(v, v == 0 ? 0 : std::clamp(3 - static_cast<int>(std::floor(std::log10(std::fabs(v)))), 0, 6));
}

std::string today() {
  const time_t now = time(nullptr);
  char text[32];
  tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(text, sizeof(text), "%Y-%m-%d", &parts);
  return text;
}

}  // namespace

std::string Report::to_text() const {
  std::vector<std::vector<std::string>> table = {{"", "value", "unit", "bound", "x bound", "goal", ""}};
  for (const BenchRow& r : rows_) {
    const bool rate = r.unit.find("/s") != std::string::npos || r.unit == "MFU";
    std::string verdict;
    if (!std::isnan(r.goal)) verdict = (rate ? r.value >= r.goal : r.value <= r.goal) ? "met" : "missed";
    table.push_back(
        {r.name, number(r.value), r.unit, number(r.bound), number(r.value / r.bound), number(r.goal), verdict});
  }
  std::vector<size_t> widths(table[0].size(), 0);
  for (size_t i = 1; i < table.size(); ++i)
    for (size_t c = 0; c < widths.size(); ++c)
      if (!table[i][c].empty()) widths[c] = std::max({widths[c], table[i][c].size(), table[0][c].size()});
  std::string text = name_;
  for (const auto& [name, value] : facts_) text += "  " + name + " " + value;
  text += "\n";
  for (const auto& line : table) {
    std::string row;
    for (size_t c = 0; c < widths.size(); ++c) {
      if (!widths[c]) continue;
      const std::string pad(widths[c] - std::min(widths[c], line[c].size()), ' ');
      const bool left = c == 0 || c == 2 || c == 6;
      row += (c ? "  " : "") + (left ? line[c] + pad : pad + line[c]);
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string Report::to_json() const {
  tools::FactList machine;
  tools::add_choice(machine);
  io::OrderedJson json;
  json["benchmark"] = name_;
  json["date"] = today();
  json["machine"] = io::parse_json(machine.to_json(), "facts");
  json["machine"]["threads"] = num_threads();
  for (const auto& [name, value] : facts_) json["facts"][name] = value;
  json["rows"] = io::OrderedJson::array();
  for (const BenchRow& r : rows_) {
    io::OrderedJson row;
    row["name"] = r.name;
    row["value"] = r.value;
    row["unit"] = r.unit;
    if (!std::isnan(r.bound)) row["bound"] = r.bound;
    if (!std::isnan(r.goal)) row["goal"] = r.goal;
    json["rows"].push_back(row);
  }
  return io::write_json(json, 1) + "\n";
}

void Report::finish(const std::string& json_file) const {
  std::fputs(to_text().c_str(), stdout);
  std::fflush(stdout);
  if (!json_file.empty()) io::write_file_atomic(io::resolve_path(json_file), to_json());
}

double median(std::vector<double> values) {
  if (values.empty()) return kNone;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double process_age() {
  const auto started =
      static_cast<double>(flight::process_stat("self").start) / static_cast<double>(sysconf(_SC_CLK_TCK));
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started;
}

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

}  // namespace weft::bench
