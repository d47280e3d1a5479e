#include "distributed/plan/plan_text.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "framework/base/parse_number.h"
#include "framework/io/file.h"

namespace weft::dist {
namespace {

constexpr int64_t kMost = int64_t{64} << 20;  // bytes of a file
constexpr int kMostRanks = 1 << 20;

std::string shown(std::string_view s) {
  std::string out;
  for (char c : s.substr(0, 60)) out += c >= ' ' && c < 127 ? c : '?';
  return s.size() > 60 ? out + "..." : out;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    if (end > at) out.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

int64_t number(std::string_view word, int64_t least, int64_t most, int line, const char* what) {
  const std::optional<int64_t> n = parse_number(word, least, most);
  WEFT_CHECK(n, "plan, line ", line, ": ", what, " is '", shown(word), "'; need a number from ", least, " to ", most);
  return *n;
}

}  // namespace

std::string plan_text(const PlanReport& r, bool hashed) {
  std::string s = str_cat("weft plan 1\nmesh ", r.mesh().size() > 1 ? r.mesh().to_string() : "one", "\n");
  for (const OptionRow* row : options_of(r.plan())) s += str_cat(row->name, " ", text_of(*row, r.plan()), "\n");
  if (hashed) s += formatted("hash %016llx\n", static_cast<unsigned long long>(r.hash()));
  for (const PlannedCell& c : r.cells())
    for (const auto& [dimension, dim] : c.split)
      s += dim >= 0 ? str_cat("split ", c.name, " ", dimension, " ", dim, "\n")
                    : str_cat("whole ", c.name, " ", dimension, "\n");
  return s + "end\n";
}

SavedPlan parse_plan(std::string_view text, const std::vector<const Strategy*>& strategies) {
  SavedPlan out;
  out.plan.strategies = strategies;
  const std::vector<const OptionRow*> options = options_of(out.plan);
  std::string names;
  for (const OptionRow* row : options) names += str_cat(row->name, ", ");
  int line_number = 0;
  bool ended = false;
  std::set<std::string, std::less<>> seen;
  std::set<std::pair<std::string, std::string>> placed;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line_number == 1) {
      WEFT_CHECK(line == "weft plan 1", "plan, line 1: got '", shown(line), "'; need 'weft plan 1'");
      continue;
    }
    std::vector<std::string_view> w = words_of(line);
    if (w.empty() || w[0][0] == '#') continue;
    WEFT_CHECK(!ended, "plan, line ", line_number, ": got '", shown(line),
               "' after the line 'end'; need no more lines");
    if (w.size() == 1 && w[0] == "end") {
      ended = true;
      continue;
    }
    const bool split = w[0] == "split", whole = w[0] == "whole";
    if (split || whole) {
      WEFT_CHECK(w.size() == (split ? 4u : 3u), "plan, line ", line_number, ": got '", shown(line), "'; need ",
                 split ? "split NAME DIMENSION DIM" : "whole NAME DIMENSION");
      WEFT_CHECK(w[1].find('*') == w[1].npos, "plan, line ", line_number, ": '", shown(w[1]),
                 "' is a pattern; need the name of a parameter");
      WEFT_CHECK(placed.emplace(w[1], w[2]).second, "plan, line ", line_number, ": '", shown(w[1]),
                 "' is placed along '", shown(w[2]), "' twice");
      const Placement placement =
          split ? Shard(static_cast<int>(number(w[3], 0, 31, line_number, "the dim"))) : Replicate();
      auto& rules = out.plan.rules;
      if (rules.empty() || rules.back().pattern != w[1]) rules.push_back({std::string(w[1]), {}});
      rules.back().placements.emplace_back(std::string(w[2]), placement);
      continue;
    }
    // The value of a free-text option, such as the name of a file, may contain spaces.
    const auto free = std::ranges::find(options, w[0], &OptionRow::name);
    if (w.size() > 2 && free != options.end() && (*free)->allowed.empty() &&
        std::holds_alternative<std::string Plan::*>((*free)->field))
      w = {w[0], line.substr(line.find(' ') + 1)};
    WEFT_CHECK(w.size() == 2, "plan, line ", line_number, ": got '", shown(line), "'; need a word and its value");
    WEFT_CHECK(seen.emplace(w[0]).second, "plan, line ", line_number, ": '", shown(w[0]), "' is given twice");
    if (w[0] == "mesh") {
      WEFT_CHECK(w[1].size() <= 200, "plan, line ", line_number, ": the mesh has ", w[1].size(),
                 " characters; need at most 200");
      out.mesh = Mesh::parse(w[1], {});
      WEFT_CHECK(out.mesh.size() <= kMostRanks, "plan, line ", line_number, ": the mesh has ", out.mesh.size(),
                 " ranks; need at most ", kMostRanks);
    } else if (w[0] == "hash") {
      const auto [stop, bad] = std::from_chars(w[1].data(), w[1].data() + w[1].size(), out.hash, 16);
      WEFT_CHECK(bad == std::errc() && stop == w[1].data() + w[1].size(), "plan, line ", line_number, ": hash is '",
                 shown(w[1]), "'; need hexadecimal digits");
    } else {
      const auto row = std::ranges::find(options, w[0], &OptionRow::name);
      WEFT_CHECK(row != options.end(), "plan, line ", line_number, ": got '", shown(w[0]), "'; need mesh, ", names,
                 "hash, split or whole");
      WEFT_CHECK(is_allowed(**row, w[1]), "plan, line ", line_number, ": ", w[0], " is '", shown(w[1]), "'; need ",
                 need_of(**row));
      set_option(**row, w[1], out.plan);
    }
  }
  WEFT_CHECK(line_number > 0, "plan: the text is empty; need 'weft plan 1' and the lines of a plan");
  WEFT_CHECK(ended,
             "plan: no line 'end': the file is incomplete, or a version of Weft before 'end' was the last line wrote "
             "it; save the plan again");
  WEFT_CHECK(seen.contains("mesh"), "plan: no line 'mesh ...'");
  for (const PlanRule& r : out.plan.rules)
    for (const auto& [dimension, placement] : r.placements)
      WEFT_CHECK(out.mesh.find(dimension), "plan: '", shown(r.pattern), "' is placed along '", shown(dimension),
                 "', but mesh ", out.mesh.to_string(), " has no dimension '", shown(dimension), "'");
  return out;
}

void save_plan(const PlanReport& report, const std::string& path, bool hashed) {
  io::write_file_atomic(path, plan_text(report, hashed));
}

SavedPlan load_plan(const std::string& path, const std::vector<const Strategy*>& strategies) {
  const std::string text = io::read_file(path, kMost);
  try {
    return parse_plan(text, strategies);
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(path, ": ", e.what()));
  }
}

}  // namespace weft::dist
