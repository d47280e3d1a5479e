// gpu summary FOLDER [--table]: prints the JSON of a GPU check, or its table, from the files of check.sh in FOLDER,
// which are parts.tsv, a log of each part, bench_*.json and torch.json. Test results come from the logs, which survive
// a crash. Rows of bench_*_mma.json have the prefix "mma: ".
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "framework/base/str_cat.h"
#include "framework/io/file.h"
#include "framework/io/json.h"

namespace weft::gpu_check {
namespace {

using io::Json;
using io::OrderedJson;

std::string read(const std::string& path) {
  try {
    return std::filesystem::exists(path) ? io::read_file(path) : "";
  } catch (const std::exception&) {
    return "";
  }
}

Json load(const std::string& path) {
  try {
    const std::string text = read(path);
    return text.empty() ? Json() : io::parse_json(text, path);
  } catch (const std::exception&) {
    return Json();
  }
}

/// "Suite.Test/3" from a line of GoogleTest's log, without parameter and time.
std::string name_in(const std::string& line) {
  const std::string rest = line.substr(13);
  return rest.substr(0, rest.find_first_of(" ,"));
}

/// Counts, failures with their text, and tests that started but did not end. "of": the number of tests selected.
OrderedJson tests_of(const std::string& log) {
  OrderedJson failed = OrderedJson::array(), unfinished = OrderedJson::array(), skipped = OrderedJson::array();
  int64_t passed = 0, of = 0;
  std::string now, text, line;
  auto abandon = [&] {
    if (!now.empty())
      unfinished.push_back({{"test", now}, {"log", text.substr(text.size() - std::min<size_t>(text.size(), 2000))}});
    now.clear();
  };
  for (std::istringstream in(log); std::getline(in, line);) {
    auto marked = [&](const char* mark) { return line.rfind(mark, 0) == 0 && line.size() > 13; };
    if (marked("[ RUN      ] ")) {
      abandon();
      now = name_in(line);
      text.clear();
    } else if (marked("[==========] Running ")) {
      if (!of) of = std::atoll(line.c_str() + 21);  // later processes run the remaining tests
    } else if (now.empty()) {
      continue;  // the list of failures at the end of a process
    } else if (marked("[       OK ] ")) {
      ++passed;
      now.clear();
    } else if (marked("[  SKIPPED ] ")) {
      skipped.push_back(now);
      now.clear();
    } else if (marked("[  FAILED  ] ")) {
      failed.push_back({{"test", now}, {"log", text.substr(0, 2000)}});
      now.clear();
    } else {
      text += line + "\n";
    }
  }
  abandon();
  return {{"of", of}, {"passed", passed}, {"failed", failed}, {"unfinished", unfinished}, {"skipped", skipped}};
}

struct SummaryLine {
  std::string name, unit;
  double weft = NAN, bound = NAN, goal = NAN, torch = NAN;
  bool rate() const { return unit.find("/s") != std::string::npos || unit == "MFU"; }
  /// Weft's speed relative to PyTorch's.
  double times() const { return rate() ? weft / torch : torch / weft; }
};

double number(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_number() ? row[key].get<double>() : NAN;
}

bool has_rows(const Json& file) { return file.is_object() && file.contains("rows"); }

/// The rows of the benchmarks, by file, each beside PyTorch's; then PyTorch's rows without a counterpart.
std::vector<SummaryLine> lines_of(const std::map<std::string, Json>& benches, const Json& torch) {
  std::map<std::string, double> theirs;
  std::set<std::string> ours;
  if (has_rows(torch))
    for (const Json& r : torch["rows"]) theirs[r.value("name", "")] = number(r, "value");
  std::vector<SummaryLine> lines;
  for (const auto& [file, bench] : benches)
    if (has_rows(bench))
      for (const Json& r : bench["rows"]) {
        SummaryLine l{r.value("name", ""), r.value("unit", ""), number(r, "value"),
                      number(r, "bound"),  number(r, "goal"),   NAN};
        if (auto it = theirs.find(l.name); it != theirs.end()) l.torch = it->second;
        ours.insert(l.name);
        if (file.ends_with("_mma.json")) l.name = "mma: " + l.name, l.goal = NAN;
        lines.push_back(l);
      }
  if (has_rows(torch))
    for (const Json& r : torch["rows"])
      if (const std::string name = r.value("name", ""); !ours.count(name))
        lines.push_back({name, r.value("unit", ""), NAN, NAN, NAN, number(r, "value")});
  return lines;
}

std::string cell(double v) { return std::isnan(v) ? "" : formatted(std::fabs(v) >= 1000 ? "%.0f" : "%.4g", v); }

int main_of(const std::string& folder, bool table) {
  OrderedJson parts = OrderedJson::object();
  bool held = true;
  std::string line;
  for (std::istringstream in(read(folder + "/parts.tsv")); std::getline(in, line);) {
    std::vector<std::string> fields;
    std::string field;
    for (std::istringstream columns(line); std::getline(columns, field, '\t');) fields.push_back(field);
    if (fields.size() < 3) continue;
    OrderedJson& p = parts[fields[0]];
    p["state"] = fields[1];
    p["seconds"] = std::atoi(fields[2].c_str());
    if (fields.size() > 3 && !fields[3].empty()) p["why"] = fields[3];
    const bool counts = fields[0] != "racecheck" && fields[1] != "skipped" && fields[1] != "left out";
    held = held && (fields[1] == "held" || !counts);
    const std::string log = read(folder + "/" + fields[0] + ".log");
    if (log.find("[ RUN      ]") != log.npos) p["tests"] = tests_of(log);
    if (fields[1] != "held") p["log"] = log.substr(log.size() - std::min<size_t>(log.size(), 4000));
  }
  std::map<std::string, Json> benches;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (const std::string name = entry.path().filename(); name.rfind("bench_", 0) == 0 && name.ends_with(".json"))
      benches[name] = load(folder + "/" + name);
  const Json torch = load(folder + "/torch.json");
  const std::vector<SummaryLine> lines = lines_of(benches, torch);
  if (table) {
    std::printf("%-46s %10s %10s %-8s %10s %8s\n", "", "goal", "measured", "", "PyTorch", "times");
    for (const SummaryLine& l : lines) {
      const char* verdict = std::isnan(l.goal) || std::isnan(l.weft)           ? ""
                            : (l.rate() ? l.weft >= l.goal : l.weft <= l.goal) ? "met"
                                                                               : "missed";
      std::printf("%-46s %10s %10s %-8s %10s %8s %s\n", l.name.c_str(), cell(l.goal).c_str(), cell(l.weft).c_str(),
                  l.unit.c_str(), cell(l.torch).c_str(), cell(l.times()).c_str(), verdict);
    }
    return 0;
  }
  OrderedJson all;
  std::string gpu = read(folder + "/gpu.txt");
  all["gpu"] = gpu.substr(0, gpu.find('\n'));
  for (const auto& [file, b] : benches)
    if (b.is_object()) {
      all["date"] = b.value("date", "");
      if (b.contains("machine")) all["machine"] = b["machine"];
      if (b.contains("facts") && b["facts"].contains("gpu")) all["gpu_facts"] = b["facts"]["gpu"];
    }
  all["held"] = held;
  all["parts"] = parts;
  all["rows"] = OrderedJson::array();
  for (const SummaryLine& l : lines) {
    OrderedJson row{{"name", l.name}, {"unit", l.unit}, {"value", l.weft}};
    if (!std::isnan(l.bound)) row["bound"] = l.bound;
    if (!std::isnan(l.goal)) row["goal"] = l.goal;
    if (!std::isnan(l.torch)) row["torch"] = l.torch, row["times_torch"] = l.times();
    all["rows"].push_back(row);
  }
  if (torch.is_object()) all["torch"] = torch.value("torch", "");
  for (const char* key : {"failed", "left_out"})  // cases of torch_bench.py
    if (torch.is_object() && torch.contains(key) && !torch[key].empty()) all[str_cat("torch_", key)] = torch[key];
  std::printf("%s\n", io::write_json(all, 1).c_str());
  return 0;
}

}  // namespace
}  // namespace weft::gpu_check

int main(int argc, char** argv) {
  const bool table = argc == 3 && std::string(argv[2]) == "--table";
  if (argc < 2 || (argc > 2 && !table)) {
    std::fprintf(stderr, "usage: summary FOLDER [--table]\n");
    return 2;
  }
  try {
    return weft::gpu_check::main_of(argv[1], table);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "summary: %s\n", e.what());
    return 1;
  }
}
