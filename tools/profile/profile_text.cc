#include "tools/profile/profile_text.h"

#include "framework/base/one_line.h"
#include "framework/io/json.h"
#include "tools/profile/memory/memory.h"
#include "tools/profile/record_file.h"
#include "tools/profile/table.h"

namespace weft::profiler {
namespace {

constexpr double kMostReached = 1.05;  // share of the roofline, with the noise of both measurements

std::string ms_text(double us) { return us != 0 ? fixed(us / 1e3, 3) : "-"; }

std::string share_of(double us, double whole) { return us != 0 && whole > 0 ? percent(us / whole) : "-"; }

// The time of the step, or of all launches if the step was not timed.
double whole_us(const StepRecord& r) { return r.step_us > 0 ? r.step_us : r.sum().measured_us; }

std::vector<std::string> cells_of(const std::string& name, const StepRecord::WorkSum& s, double whole) {
  const double us = s.measured_us;
  return {name,
          str_cat(s.launches),
          ms_text(us),
          share_of(us, whole),
          fixed(s.work.bytes / 1e6, 2),
          str_cat(s.work.at_most ? "<=" : "", fixed(s.work.flops / 1e6, 2)),
          rate_text(s.work.bytes / 1e3, us),
          rate_text(s.work.flops / 1e3, us),
          us > 0 ? percent(s.predicted_us / us) : "-"};
}

std::string places_text(const ProfileRow& row) {
  return str_cat(row.places[0], row.places.size() > 1 ? str_cat(" and ", row.places.size() - 1, " more") : "");
}

std::vector<std::vector<std::string>> class_lines(const std::vector<ClassShare>& shares) {
  std::vector<std::vector<std::string>> lines{{"class", "calls", "FLOPs", "time"}};
  for (const ClassShare& s : shares)
    lines.push_back({weft::to_string(s.kind), str_cat(s.launches), percent(s.flops), percent(s.time)});
  return lines;
}

io::OrderedJson classes_json(const std::vector<ClassShare>& shares) {
  io::OrderedJson all = io::OrderedJson::array();
  for (const ClassShare& s : shares)
    all.push_back({{"class", weft::to_string(s.kind)}, {"calls", s.launches}, {"flops", s.flops}, {"time", s.time}});
  return all;
}

// "10 times as fast"; factors below 1 as "2 times as slow".
std::string times_text(double factor) {
  return formatted("%.4g times as %s", factor < 1 ? 1 / factor : factor, factor < 1 ? "slow" : "fast");
}

io::OrderedJson sum_json(const StepRecord::WorkSum& s) {
  io::OrderedJson j{{"calls", s.launches},
                    {"us", s.measured_us},
                    {"predicted_us", s.predicted_us},
                    {"bytes", s.work.bytes},
                    {"flops", s.work.flops}};
  if (s.work.at_most) j["at_most"] = true;
  return j;
}

}  // namespace

std::string head_text(const StepRecord& r) {
  const StepRecord::WorkSum all = r.sum();
  std::string s = str_cat(r.title.empty() ? "step" : one_line(r.title), ", on ", r.device, ": ");
  if (r.step_us > 0) s += str_cat(fixed(r.step_us / 1e3, 3), " ms a step (untraced), ");
  s += str_cat(all.launches, all.launches == 1 ? " launch\n" : " launches\n");
  if (all.measured_us == 0)
    s += str_cat("This record has no measured times, so shares of time are predicted. To measure, ", kGetTimes, ".\n");
  else if (r.step_us == 0)
    s += "This record has no time of the whole step: the shares are of the launches, and no overhead is shown.\n";
  s += str_cat("rates: ", fixed(r.machine.bytes / 1e9, 1), " GB/s, elementwise ", fixed(r.machine.flops / 1e9, 0),
               " GFLOP/s, products ", fixed(r.machine.products / 1e9, 0), " in f32 and ",
               fixed(r.machine.products16 / 1e9, 0), " in 16 bits\n");
  return s;
}

std::string rows_text(const StepRecord& r, By by) {
  std::vector<std::vector<std::string>> lines{
      {to_string(by), "calls", "ms", "share", "MB", "MFLOP", "GB/s", "GFLOP/s", "roofline", "bound"}};
  if (by == By::kKernel) lines[0].push_back("where");  // other names contain the place, or are sums over places
  const double whole = whole_us(r);
  bool above = false;
  for (const ProfileRow& row : rows_of(r, by)) {
    lines.push_back(cells_of(row.name, row.sum, whole));
    if (row.collective) lines.back().back() = "-";
    lines.back().push_back(row.collective ? "-" : weft::to_string(row.bound));
    above |= row.reached() > kMostReached;
    if (by == By::kKernel) lines.back().push_back(places_text(row));
  }
  lines.push_back(cells_of("all launches", r.sum(), whole));
  if (const double us = overhead_us(r); us != 0) {
    lines.push_back({"overhead", "", ms_text(us), share_of(us, whole)});
    lines.push_back({"step", "", ms_text(r.step_us), percent(1)});
  }
  return str_cat(
      table_text(lines), busy_text(r),
      above ? "A share of the roofline above 105 % says that the rates were measured at a busy moment; measure "
              "them again: //tools:doctor -- --measure --out FILE, and --weft_machine FILE.\n"
            : "");
}

std::string parts_text(const StepRecord& r) {
  std::string s;
  if (const StepParts parts = parts_of(r); parts.sum() > 0) {
    auto add = [&](const char* name, double us) {
      if (us != 0) s += str_cat(s.empty() ? "" : ", ", name, " ", ms_text(us), " ms (", percent(us / parts.sum()), ")");
    };
    add("compute", parts.compute);
    add("memory", parts.memory);
    add("communication", parts.communication);
    add("overhead", parts.overhead);
    s += "\n\n";
  }
  return s + table_text(class_lines(class_shares(r)));
}

std::string missed_text(const StepRecord& r) {
  constexpr size_t kMost = 10;  // rows of each kind
  if (r.missed.empty()) return {};
  std::string s = "copies and unfused kernels, with the traffic that they cost\n";
  for (const auto kind : {MissedRecord::kCopy, MissedRecord::kSeparateKernels}) {
    size_t count = 0;
    for (const MissedRecord& m : r.missed)
      if (m.kind == kind && count++ < kMost) s += str_cat("  ", one_line(m.to_string()), "\n");
    if (count > kMost) s += str_cat("  and ", count - kMost, " more; --json lists all\n");
  }
  return s;
}

std::string what_if_text(const StepRecord& r, const Speedups& speedups) {
  std::string s = "if";
  for (const auto& [kind, factor] : speedups)
    s += str_cat(s == "if" ? " " : ", ", weft::to_string(kind), " were ", times_text(factor));
  const FasterStep then = what_if(r, speedups);
  s += str_cat(": launches take ", fixed(then.launches_us / 1e3, 3), " ms instead of ",
               fixed(then.launches_before_us / 1e3, 3));
  if (then.step_us > 0) s += str_cat(", the step ", ms_text(then.step_us), " instead of ", ms_text(r.step_us));
  if (then.predicted) s += "; these times are predicted";
  return str_cat(s, "\n", table_text(class_lines(then.shares)));
}

std::string profile_json(const StepRecord& r, By by, const Speedups& speedups) {
  io::OrderedJson rows = io::OrderedJson::array();
  for (const ProfileRow& row : rows_of(r, by)) {
    io::OrderedJson j{{"name", row.name}};
    j.update(sum_json(row.sum));
    j["roofline"] = row.reached();
    j["bound"] = weft::to_string(row.bound);
    j["places"] = row.places;
    rows.push_back(j);
  }
  const StepParts parts = parts_of(r);
  io::OrderedJson out{{"title", r.title},
                      {"device", r.device},
                      {"machine",
                       {{"bytes", r.machine.bytes},
                        {"flops", r.machine.flops},
                        {"products", r.machine.products},
                        {"products16", r.machine.products16}}},
                      {"step_us", r.step_us},
                      {"all", sum_json(r.sum())},
                      {"overhead_us", overhead_us(r)},
                      {"comparable", comparable(r)},
                      {"by", to_string(by)},
                      {"rows", rows},
                      {"parts_us",
                       {{"compute", parts.compute},
                        {"memory", parts.memory},
                        {"communication", parts.communication},
                        {"overhead", parts.overhead}}},
                      {"classes", classes_json(class_shares(r))}};
  if (!speedups.empty()) {
    const FasterStep then = what_if(r, speedups);
    out["what_if"] = {{"launches_us", then.launches_us}, {"launches_before_us", then.launches_before_us},
                      {"step_us", then.step_us},         {"step_before_us", r.step_us},
                      {"predicted", then.predicted},     {"classes", classes_json(then.shares)}};
  }
  io::OrderedJson missed = io::OrderedJson::array();
  for (const MissedRecord& m : r.missed)
    missed.push_back({{"kind", weft::to_string(m.kind)},
                      {"from", m.from},
                      {"to", m.to},
                      {"reason", m.reason},
                      {"bytes", m.bytes},
                      {"times", m.times}});
  out["missed"] = std::move(missed);
  const MemoryUse memory = memory_of(r);
  io::OrderedJson holders = io::OrderedJson::array();
  for (const Holder& h : memory.holders) {
    io::OrderedJson j{{"name", h.name}, {"home", h.home}, {"bytes", h.bytes}};
    if (!h.module.empty()) j["module"] = h.module;
    if (!h.line.empty()) j["line"] = h.line;
    if (!h.phase.empty()) j["phase"] = h.phase;
    if (h.first >= 0) j["first"] = h.first, j["last"] = h.last;
    holders.push_back(j);
  }
  out["memory"] = {{"peak_bytes", r.peak_bytes},
                   {"measured_peak_bytes", r.measured_peak_bytes},
                   {"peak_launch", r.peak_launch},
                   {"holders", holders}};
  return io::write_json(out);
}

}  // namespace weft::profiler
