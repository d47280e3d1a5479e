// The rules of a plan: placements of parameters by name.
#include <algorithm>

#include "distributed/strategies/strategies.h"

namespace weft::dist {
namespace {

// The edit distance of a name and a pattern, in which * stands for any text.
size_t distance(const std::string& pattern, const std::string& name) {
  std::vector<size_t> row(name.size() + 1);
  for (size_t j = 0; j <= name.size(); ++j) row[j] = j;
  for (const char c : pattern) {
    size_t corner = row[0];
    row[0] += c != '*';
    for (size_t j = 1; j <= name.size(); ++j) {
      const size_t above = row[j];
      row[j] =
          c == '*' ? std::min(above, row[j - 1]) : std::min({corner + (c != name[j - 1]), above + 1, row[j - 1] + 1});
      corner = above;
    }
  }
  return row.back();
}

std::string nearest(const StrategyContext& s, const std::string& pattern) {
  std::string out;
  size_t least = 0;
  for (const ParameterPin& p : s.parameters)
    if (const size_t d = distance(pattern.substr(0, 200), p.name); out.empty() || d < least) least = d, out = p.name;
  return out;
}

}  // namespace

bool name_matches(std::string_view pattern, std::string_view name) {
  // The match is greedy, and goes back to the last star only, so it is linear in practice.
  size_t p = 0, n = 0, star = pattern.npos, back = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      back = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++back;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

void pin_rules(StrategyContext& s) {
  struct Said {
    int32_t cell;
    Axes axes;
    std::string pattern;
  };
  std::vector<Said> said;
  for (const PlanRule& rule : s.plan.rules) {
    bool any = false;
    for (ParameterPin& p : s.parameters) {
      if (!name_matches(rule.pattern, p.name)) continue;
      any = true;
      for (const auto& [dim_name, placement] : rule.placements) {
        const Mesh::Dim* d = s.mesh.find(dim_name);
        std::string known;
        for (const Mesh::Dim& k : s.mesh.dims()) known += (known.empty() ? "" : ", ") + k.name;
        WEFT_CHECK(d, "plan: rule '", rule.pattern, "' names mesh dimension '", dim_name, "'; ",
                   known.empty() ? "no dimension of the mesh places tensors: pp has stages" : "there are " + known);
        WEFT_CHECK(placement.dim >= -1 && placement.dim < p.shape.size(), "plan: rule '", rule.pattern, "' shards dim ",
                   placement.dim, " of '", p.name, "' ", p.shape, "; need a dim from 0 to ", p.shape.size() - 1);
        for (const Said& earlier : said)
          for (int8_t a : d->axes)
            WEFT_CHECK(earlier.cell != p.cell || !earlier.axes.contains(a), "plan: rule '", rule.pattern, "' places '",
                       p.name, "' over ", dim_name, ", and so does rule '", earlier.pattern, "'; need one rule for it");
        said.push_back({p.cell, d->axes, rule.pattern});
        p.split_by_rule = true;
        p.why += str_cat(p.why.empty() ? "" : "; ", "rule '", rule.pattern, "'");
        if (placement.dim < 0) continue;
        WEFT_CHECK(p.shape[placement.dim] >= d->size, "plan: rule '", rule.pattern, "' shards dim ", placement.dim,
                   " of '", p.name, "' ", p.shape, " over ", dim_name, d->size, "; need an extent of at least ",
                   d->size);
        for (int8_t a : d->axes) p.split[placement.dim].push_back(a);
      }
    }
    WEFT_CHECK(any, "plan: rule '", rule.pattern, "' matches no parameter; the nearest name is '",
               nearest(s, rule.pattern), "'");
  }
}

}  // namespace weft::dist
