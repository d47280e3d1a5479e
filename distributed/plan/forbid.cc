#include "distributed/plan/forbid.h"

#include <algorithm>

#include "distributed/plan/collective_names.h"
#include "distributed/strategies/strategies.h"
#include "framework/base/error.h"
#include "framework/base/units.h"

namespace weft::dist {
namespace {

constexpr std::pair<std::string_view, Collective> kKinds[] = {{"allreduce", Collective::kAllReduce},
                                                              {"allgather", Collective::kAllGather},
                                                              {"reducescatter", Collective::kReduceScatter},
                                                              {"alltoall", Collective::kAllToAll},
                                                              {"permute", Collective::kPermute},
                                                              {"broadcast", Collective::kBroadcast},
                                                              {"send", Collective::kSend},
                                                              {"recv", Collective::kRecv}};

std::string plain(std::string_view word) {
  std::string s;
  for (char c : word)
    if (c != '-' && c != '_') s += c;
  return s;
}

// The first 40 characters are enough to recognise a word.
std::string shown(const std::string& text) { return text.size() <= 40 ? text : text.substr(0, 40) + "..."; }

// The setting that avoids such a collective, from the last strategy that names one.
std::string avoid(const Mesh& mesh, const Plan& plan, const PlannedCollective& c) {
  const std::vector<const Strategy*> all = strategies_of(plan);
  for (size_t i = all.size(); i-- > 0;)
    if (all[i]->avoid)
      if (std::string setting = all[i]->avoid(mesh, c); !setting.empty()) return setting;
  return str_cat("a rule of the plan that places its operands alike over ", c.axes, ", or a mesh without it (this is ",
                 mesh.to_string(), ")");
}

}  // namespace

ForbidRule parse_forbid(const Mesh& mesh, const std::string& text) {
  const size_t at = text.find('@');
  WEFT_CHECK(at != text.npos, "forbid: got '", shown(text),
             "'; need KIND@DIMENSION or KIND@DIMENSION:WHAT, as in \"allgather@dp:activations\"");
  const size_t colon = text.find(':', at);
  ForbidRule r{.text = text};
  const std::string kind = text.substr(0, at);
  r.dimension = text.substr(at + 1, colon == text.npos ? text.npos : colon - at - 1);
  if (kind != "*") {
    std::string words;
    for (const auto& [word, k] : kKinds) {
      if (word == plain(kind)) r.kind = k;
      words += str_cat(word, ", ");
    }
    WEFT_CHECK(r.kind, "forbid: '", shown(text), "' names the collective '", shown(kind), "'; need ", words, "or *");
  }
  if (r.dimension != "*") {
    bool known = false;
    for (const Strategy* s : strategies_of({})) known |= std::ranges::count(s->dimensions, r.dimension) > 0;
    std::string words;
    for (const Mesh::Dim& d : mesh.dims()) {
      known |= d.name == r.dimension;
      words += str_cat(d.name, ", ");
    }
    WEFT_CHECK(known, "forbid: '", shown(text), "' names the mesh dimension '", shown(r.dimension), "'; need ", words,
               "or *");
  }
  if (colon != text.npos) {
    const std::string what = text.substr(colon + 1);
    WEFT_CHECK(!what.empty(), "forbid: '", shown(text),
               "' says nothing after ':'; need parameters, gradients, activations, scalars or a pattern of names");
    if (what == "parameters") {
      r.subject = Subject::kParameter;
    } else if (what == "gradients") {
      r.subject = Subject::kGradient;
    } else if (what == "activations") {
      r.subject = Subject::kActivation;
    } else if (what == "scalars") {
      r.subject = Subject::kScalar;
    } else {
      r.pattern = what;
    }
  }
  return r;
}

std::vector<ForbidRule> parse_forbid(const Mesh& mesh, const std::vector<std::string>& rules) {
  std::vector<ForbidRule> out;
  for (const std::string& text : rules) out.push_back(parse_forbid(mesh, text));
  return out;
}

bool matches(const ForbidRule& rule, const PlannedCollective& c) {
  if (rule.kind && *rule.kind != c.kind) return false;
  if (rule.subject && *rule.subject != c.subject) return false;
  if (rule.dimension != "*") {
    const std::vector<std::string> over = dimensions_of(c.axes);
    if (std::find(over.begin(), over.end(), rule.dimension) == over.end()) return false;
  }
  return rule.pattern.empty() || name_matches(rule.pattern, c.what);
}

void check_forbidden(const Mesh& mesh, const Plan& plan, const std::vector<ForbidRule>& rules,
                     const std::vector<PlannedCollective>& collectives) {
  for (const ForbidRule& r : rules)
    for (const PlannedCollective& c : collectives) {
      if (!matches(r, c)) continue;
      internal::fail(Code::kFailedPrecondition,
                     str_cat("forbid: '", r.text, "' forbids the ", title(c.kind), " of ", bytes_text(c.bytes),
                             " over ", c.axes, " of ", c.what, " (", to_string(c.subject), ", ", to_string(c.phase),
                             ")", c.line.empty() ? "" : str_cat(" made at ", c.line), "; it is there because ", c.why,
                             "; to avoid it: ", avoid(mesh, plan, c)));
    }
}

}  // namespace weft::dist
