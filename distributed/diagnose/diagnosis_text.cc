// Diagnoses as text and as JSON.
#include "distributed/diagnose/diagnosis.h"
#include "distributed/diagnose/replicas.h"
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

static io::OrderedJson json_of(const Diagnosis& d) {
  io::OrderedJson j;
  j["fault"] = to_string_view(d.fault);
  if (!d.detail.empty()) j["detail"] = d.detail;
  if (d.rank >= 0) j["rank"] = d.rank, j["host"] = d.host, j["pid"] = d.pid;
  if (!d.collective.empty()) {
    io::OrderedJson& c = j["collective"];
    c["text"] = d.collective;
    c["site"] = static_cast<int64_t>(d.site);
    if (d.position >= 0) c["position"] = d.position, c["call"] = d.call;
    c["tensor"] = d.tensor;
    c["line"] = d.line;
  }
  j["sentence"] = d.sentence;
  if (!d.launcher.empty()) j["launcher"] = d.launcher;
  j["ranks"] = io::OrderedJson::array();
  for (const RankSummary& r : d.ranks)
    j["ranks"].push_back({{"rank", r.rank},
                          {"host", r.host},
                          {"pid", r.pid},
                          {"state", r.state},
                          {"last", r.last},
                          {"seconds", r.seconds}});
  j["notes"] = d.notes;
  return j;
}

std::string Diagnosis::to_json() const { return io::write_json(json_of(*this), 2); }

std::string ReplicasDiagnosis::to_string() const {
  std::string text;
  for (const std::string& s : sentences) text += s + "\n";
  for (const ReplicaDiagnosis& r : replicas)
    text += str_cat("\nreplica ", r.name, ", view ", r.view, ": ", r.job.to_string());
  return text;
}

std::string ReplicasDiagnosis::to_json() const {
  io::OrderedJson j;
  if (awaited >= 0) j["awaited"] = replicas[static_cast<size_t>(awaited)].name;
  j["sentences"] = sentences;
  j["replicas"] = io::OrderedJson::array();
  for (const ReplicaDiagnosis& r : replicas)
    j["replicas"].push_back({{"name", r.name}, {"view", r.view}, {"diagnosis", json_of(r.job)}});
  return io::write_json(j, 2);
}

}  // namespace weft::dist::diagnose
