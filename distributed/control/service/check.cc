#include "distributed/control/service/check.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

constexpr size_t kNamed = 4;  // limit of the ranks that a sentence names

std::string listed(const std::vector<std::string>& names, size_t count, const char* one, const char* many) {
  std::string out = str_cat(count == 1 ? one : many, " ");
  for (size_t i = 0; i < names.size(); ++i) out += str_cat(i == 0 ? "" : i + 1 == count ? " and " : ", ", names[i]);
  if (count > names.size()) out += str_cat(" and ", count - names.size(), " more");
  return out;
}

std::string placed(const Process& p) {
  return str_cat(p.rank(), " (host ", one_line(p.host(), 80), ", pid ", p.pid(), ")");
}

/// The most frequent value among the members; on a tie, the lowest rank's value. A missing fact counts as "".
std::string most_common(const std::map<uint32_t, std::string>& values) {
  std::map<std::string, size_t> count;
  for (const auto& [rank, value] : values) ++count[value];
  size_t most = 0;
  for (const auto& [value, n] : count) most = std::max(most, n);
  for (const auto& [rank, value] : values)
    if (count[value] == most) return value;
  return "";
}

}  // namespace

Failure failure_of(Code code, const std::string& text) {
  Failure f;
  f.set_code(static_cast<uint32_t>(code));
  f.set_text(text);
  return f;
}

std::string name_of(const Process& p) { return str_cat("rank ", placed(p)); }

std::string ranks_text(const std::vector<uint32_t>& ranks) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(ranks.size(), 2 * kNamed); ++i) names.push_back(str_cat(ranks[i]));
  return listed(names, ranks.size(), "rank", "ranks");
}

std::string names_text(const std::vector<const Process*>& processes) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(processes.size(), kNamed); ++i) names.push_back(placed(*processes[i]));
  return listed(names, processes.size(), "rank", "ranks");
}

std::string seconds_text(int64_t ms) { return formatted("%.1f s", 1e-3 * static_cast<double>(ms)); }

End difference_of(const std::map<uint32_t, Member>& members) {
  std::vector<std::string> names;  // ordered by the lowest rank that has the fact
  for (const auto& [rank, m] : members)
    for (const Fact& f : m.facts)
      if (std::find(names.begin(), names.end(), f.name()) == names.end()) names.push_back(f.name());
  End end;
  end.set_rank(-1);
  std::string text;
  std::vector<uint32_t> culprits;
  for (const std::string& name : names) {
    std::map<uint32_t, std::string> values;
    for (const auto& [rank, m] : members) {
      values[rank] = "";
      for (const Fact& f : m.facts)
        if (f.name() == name) values[rank] = f.value();
    }
    const std::string common = most_common(values);
    std::map<std::string, std::vector<const Process*>> others;
    for (const auto& [rank, value] : values)
      if (value != common) {
        others[value].push_back(&members.at(rank).process);
        culprits.push_back(rank);
      }
    const std::string shown = one_line(name, 40);
    for (const auto& [value, processes] : others) {
      if (text.size() > 2000) break;
      text += str_cat(text.empty() ? "" : "; ", names_text(processes), processes.size() == 1 ? " has " : " have ",
                      shown, " ", value.empty() ? "''" : one_line(value, 80), " and the others have ",
                      common.empty() ? "''" : one_line(common, 80));
    }
  }
  if (text.empty()) return end;
  std::sort(culprits.begin(), culprits.end());
  culprits.erase(std::unique(culprits.begin(), culprits.end()), culprits.end());
  if (culprits.size() == 1) end.set_rank(culprits[0]);
  end.mutable_cause()->set_code(static_cast<uint32_t>(Code::kFailedPrecondition));
  end.mutable_cause()->set_text(str_cat(
      "join: ", text, "; need equal values on all ranks: start all with the same binary, flags and environment"));
  return end;
}

std::string problem_of(const MemberMessage& m, const ServiceLimits& limits) {
  auto name = [&](const std::string& text, const char* what) {
    return text.size() <= limits.name_bytes
               ? std::string()
               : str_cat("a ", what, " of ", text.size(), " bytes; need at most ", limits.name_bytes);
  };
  auto text = [&](const std::string& t) {
    return t.size() <= limits.text_bytes ? std::string()
                                         : str_cat("a text of ", t.size(), " bytes; need at most ", limits.text_bytes);
  };
  auto wait = [&](const std::string& n, const char* what, uint64_t ms) {
    if (n.empty()) return str_cat("a ", what, " without a name");
    return ms > limits.wait_ms ? str_cat("a wait of ", ms, " ms; need at most ", limits.wait_ms) : name(n, what);
  };
  if (m.incarnation() == 0) return "a message without an incarnation";
  if (m.sequence() == 0) return "a message without a number";
  switch (m.kind_case()) {
    case MemberMessage::kJoin: {
      const Join& j = m.join();
      if (j.size() == 0 || j.size() > limits.members)
        return str_cat("a world of ", j.size(), " ranks; need 1 to ", limits.members);
      if (m.rank() >= j.size()) return str_cat("rank ", m.rank(), " in a world of ", j.size());
      if (j.endpoints_size() > limits.endpoints)
        return str_cat(j.endpoints_size(), " endpoints; need at most ", limits.endpoints);
      if (j.facts_size() > limits.facts) return str_cat(j.facts_size(), " facts; need at most ", limits.facts);
      std::string p = name(j.job(), "job's name");
      if (p.empty()) p = name(j.host(), "host's name");
      for (const std::string& e : j.endpoints())
        if (p.empty()) p = name(e, "endpoint");
      for (const Fact& f : j.facts()) {
        if (p.empty()) p = name(f.name(), "fact's name");
        if (p.empty()) p = name(f.value(), "fact");
      }
      return p.empty() ? text(j.failure().text()) : p;
    }
    case MemberMessage::kBeat:
      return name(m.beat().phase(), "phase");
    case MemberMessage::kSet:
      if (m.set().value().size() > limits.value_bytes)
        return str_cat("a value of ", m.set().value().size(), " bytes; need at most ", limits.value_bytes);
      return wait(m.set().key(), "key", 0);
    case MemberMessage::kGet:
      return wait(m.get().key(), "key", m.get().wait_ms());
    case MemberMessage::kBarrier:
      return wait(m.barrier().name(), "barrier", m.barrier().wait_ms());
    case MemberMessage::kAbort:
      return text(m.abort().text());
    case MemberMessage::kDeath:
      return text(m.death().text());
    case MemberMessage::kLeave:
      return "";
    case MemberMessage::kReport:
    case MemberMessage::kCards:
    case MemberMessage::kReplicaDeath:
      return "a message of a replica; need the address of the service of replicas in REPLICAS";
    case MemberMessage::KIND_NOT_SET:
      return "a message without content";
  }
  return "a message of an unknown kind";
}

}  // namespace weft::control
