#include "tools/profile/diff.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "framework/io/json.h"
#include "tools/profile/table.h"

namespace weft::profiler {
namespace {

constexpr double kNoChange = 1e-3;  // share of the step
constexpr const char* kSpread =
    "Times are single measurements: records have no spread. Compare two records of one program to see it.\n";

constexpr const char* kOneStep = "One record only has a time of the whole step: the steps are not compared.\n";

std::string sign_text(double v, int digits) { return str_cat(v > 0 ? "+" : "", fixed(v, digits)); }

std::string change_text(double before, double after) {
  return before > 0 ? str_cat(sign_text(100 * (after - before) / before, 1), "%") : "";
}

std::vector<std::string> numbers(const std::string& name, double before, double after, const char* unit) {
  return {name, fixed(before, 3), fixed(after, 3), sign_text(after - before, 3), change_text(before, after), unit};
}

std::vector<std::string> line_of(const DiffRow& r) {
  return {str_cat("  ", r.name),
          str_cat(r.before.launches),
          str_cat(r.after.launches),
          fixed(r.before.measured_us / 1e3, 3),
          fixed(r.after.measured_us / 1e3, 3),
          sign_text(r.change_us() / 1e3, 3),
          change_text(r.before.measured_us, r.after.measured_us),
          fixed(r.before.work.bytes / 1e6, 2),
          fixed(r.after.work.bytes / 1e6, 2)};
}

}  // namespace

std::vector<DiffRow> diff_rows(const StepRecord& before, const StepRecord& after, By by) {
  std::vector<DiffRow> rows;
  std::map<std::string, size_t> numbers;
  for (StepRecord::WorkSum DiffRow::*side : {&DiffRow::before, &DiffRow::after})
    for (const ProfileRow& row : rows_of(side == &DiffRow::before ? before : after, by)) {
      const auto [at, fresh] = numbers.try_emplace(row.name, rows.size());
      if (fresh) rows.push_back({.name = row.name, .before = {}, .after = {}});
      rows[at->second].*side = row.sum;
    }
  std::stable_sort(rows.begin(), rows.end(), [](const DiffRow& a, const DiffRow& b) {
    return std::abs(a.change_us()) > std::abs(b.change_us());
  });
  return rows;
}

std::string diff_text(const StepRecord& before, const StepRecord& after, By by) {
  const StepRecord::WorkSum all[] = {before.sum(), after.sum()};
  std::vector<std::vector<std::string>> head{{"", "before", "after", "change", "", ""}};
  if (before.step_us > 0 && after.step_us > 0) {
    head.push_back(numbers("step", before.step_us / 1e3, after.step_us / 1e3, "ms"));
    head.push_back(numbers("overhead", overhead_us(before) / 1e3, overhead_us(after) / 1e3, "ms"));
  }
  head.push_back(numbers("launches", all[0].measured_us / 1e3, all[1].measured_us / 1e3, "ms"));
  head.push_back(numbers("traffic", all[0].work.bytes / 1e6, all[1].work.bytes / 1e6, "MB"));
  head.push_back(numbers("arithmetic", all[0].work.flops / 1e9, all[1].work.flops / 1e9, "GFLOP"));
  head.push_back(numbers("peak memory", static_cast<double>(before.peak_bytes) / 1e6,
                         static_cast<double>(after.peak_bytes) / 1e6, "MB"));

  const double least = kNoChange * std::max(all[0].measured_us, all[1].measured_us);
  auto same = [&](const DiffRow& r) {
    return std::abs(r.change_us()) <= least && r.before.launches == r.after.launches &&
           r.before.work.bytes == r.after.work.bytes;
  };
  auto both = [](const DiffRow& r) { return r.before.launches > 0 && r.after.launches > 0; };
  const std::vector<std::pair<const char*, std::function<bool(const DiffRow&)>>> groups{
      {"faster", [&](const DiffRow& r) { return both(r) && !same(r) && r.change_us() < 0; }},
      {"slower or otherwise changed", [&](const DiffRow& r) { return both(r) && !same(r) && r.change_us() >= 0; }},
      {"new", [](const DiffRow& r) { return r.before.launches == 0; }},
      {"gone", [](const DiffRow& r) { return r.after.launches == 0; }}};
  std::vector<std::vector<std::string>> lines{
      {to_string(by), "calls", "after", "ms", "after", "change", "", "MB", "after"}};
  const std::vector<DiffRow> rows = diff_rows(before, after, by);
  for (const auto& [name, belongs] : groups) {
    bool any = false;
    for (const DiffRow& r : rows) {
      if (!belongs(r)) continue;
      if (!any) lines.push_back({name});
      any = true;
      lines.push_back(line_of(r));
    }
  }
  const auto unchanged = std::count_if(rows.begin(), rows.end(), [&](const DiffRow& r) { return both(r) && same(r); });
  if (unchanged > 0) lines.push_back({str_cat("the same: ", unchanged)});
  return str_cat("before: ", before.title, "\nafter:  ", after.title, "\n", table_text(head),
                 (before.step_us > 0) == (after.step_us > 0) ? "" : kOneStep, busy_text(before, "before: "),
                 busy_text(after, "after: "), kSpread, "\n", table_text(lines));
}

std::string diff_json(const StepRecord& before, const StepRecord& after, By by) {
  auto pair = [](auto a, auto b) { return io::OrderedJson::array({a, b}); };
  io::OrderedJson rows = io::OrderedJson::array();
  for (const DiffRow& r : diff_rows(before, after, by))
    rows.push_back({{"name", r.name},
                    {"calls", pair(r.before.launches, r.after.launches)},
                    {"us", pair(r.before.measured_us, r.after.measured_us)},
                    {"bytes", pair(r.before.work.bytes, r.after.work.bytes)},
                    {"flops", pair(r.before.work.flops, r.after.work.flops)}});
  const StepRecord::WorkSum a = before.sum(), b = after.sum();
  return io::write_json(io::OrderedJson{{"by", to_string(by)},
                                        {"title", pair(before.title, after.title)},
                                        {"step_us", pair(before.step_us, after.step_us)},
                                        {"launches_us", pair(a.measured_us, b.measured_us)},
                                        {"comparable", pair(comparable(before), comparable(after))},
                                        {"bytes", pair(a.work.bytes, b.work.bytes)},
                                        {"peak_bytes", pair(before.peak_bytes, after.peak_bytes)},
                                        {"rows", rows}});
}

}  // namespace weft::profiler
