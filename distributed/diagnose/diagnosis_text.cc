// A diagnosis as text and as JSON.

#include "distributed/diagnose/diagnosis.h"
#include "framework/base/one_line.h"
#include "framework/io/json.h"

namespace weft::dist::diagnose {

std::string_view to_string_view(Fault fault) {
  constexpr std::string_view k[] = {"none",    "never entered", "extra",   "mismatched",       "slow",
                                    "stopped", "dead",          "cut off", "busy on the host", "failed"};
  return k[static_cast<int>(fault)];
}

std::string Diagnosis::verdict() const {
  if (fault == Fault::kNone) return sentence;
  return str_cat(fault, detail.empty() ? "" : str_cat(" (", detail, ")"), ": ", sentence);
}

std::string Diagnosis::to_string() const {
  std::string text = verdict() + "\n";
  if (!launcher.empty() && launcher != verdict())
    text = str_cat("the launcher, when the job failed: ", launcher, "\nthe records alone: ", text);
  if (!ranks.empty()) text += "\nrank      pid  state       since  last\n";
  for (const RankSummary& r : ranks)
    text += formatted("%4d %8d  %-9.20s %5.2f s  ", r.rank, r.pid, r.state.c_str(), r.seconds) + r.last + "\n";
  for (const std::string& n : notes) text += str_cat("note: ", one_line(n), "\n");
  return text;
}

std::string Diagnosis::to_json() const {
  io::OrderedJson j;
  j["fault"] = to_string_view(fault);
  if (!detail.empty()) j["detail"] = detail;
  if (rank >= 0) j["rank"] = rank, j["host"] = host, j["pid"] = pid;
  if (!collective.empty()) {
    io::OrderedJson& c = j["collective"];
    c["text"] = collective;
    c["site"] = static_cast<int64_t>(site);
    if (position >= 0) c["position"] = position, c["call"] = call;
    c["tensor"] = tensor;
    c["line"] = line;
  }
  j["sentence"] = sentence;
  if (!launcher.empty()) j["launcher"] = launcher;
  j["ranks"] = io::OrderedJson::array();
  for (const RankSummary& r : ranks)
    j["ranks"].push_back({{"rank", r.rank},
                          {"host", r.host},
                          {"pid", r.pid},
                          {"state", r.state},
                          {"last", r.last},
                          {"seconds", r.seconds}});
  j["notes"] = notes;
  return io::write_json(j, 2);
}

}  // namespace weft::dist::diagnose
