#include "distributed/diagnose/replicas.h"

#include <algorithm>

#include "framework/base/one_line.h"

namespace weft::dist::diagnose {
namespace {

using flight::Event;
using flight::Record;

// How far the slowest rank of a replica is.
struct Progress {
  int64_t view = 0;
  uint64_t sums = 0;   // started in the view
  bool votes = false;  // it has entered the vote after them
  int rank = -1;       // the slowest rank; -1: no rank has records
  std::pair<uint64_t, bool> place() const { return {sums, votes}; }
};

bool is_vote(const RankTrace& t, const Record& r) {
  return r.event == Event::kStart && r.kind == Collective::kBarrier && r.plan &&
         t.communicators[r.communicator] == "world";
}
bool is_sum(const RankTrace& t, const Record& r) {
  return r.event == Event::kStart && t.communicators[r.communicator] == flight::kReplicaAxis;
}

Progress progress_of(const TracedJob& job) {
  Progress least;
  for (const RankTrace& t : job.ranks) {
    if (!t.present()) continue;
    Progress p{.view = t.view.view, .sums = t.sums, .rank = t.rank};
    for (const Record& r : t.records) p.votes = t.sums > 0 && (is_vote(t, r) || (p.votes && !is_sum(t, r)));
    if (least.rank < 0 || std::pair(p.view, p.place()) < std::pair(least.view, least.place())) least = p;
  }
  return least;
}

std::string name_of(const std::pair<std::string, TracedJob>& job) {
  for (const RankTrace& t : job.second.ranks)
    if (!t.view.replica.empty()) return t.view.replica;
  return job.first;
}

// "a", "a and b", "a, b and c".
std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return str_cat(names.size() > 1 ? "replicas " : "replica ", text);
}

const RankSummary* summary_of(const Diagnosis& d, int rank) {
  const auto at = std::ranges::find(d.ranks, rank, &RankSummary::rank);
  return at == d.ranks.end() ? nullptr : &*at;
}

// The fault of a replica's job, or else the last action of its slowest rank.
std::string fault_of(const Diagnosis& d, int rank) {
  const RankSummary* const s = summary_of(d, rank);
  if (d.fault != Fault::kNone || !s) return d.verdict();
  return str_cat("rank ", s->rank, " (host ", s->host, ", pid ", s->pid, ", ", s->state, ") ", s->last,
                 formatted(", %.2f s ago", s->seconds));
}

}  // namespace

ReplicasDiagnosis diagnose_replicas(const std::vector<std::pair<std::string, TracedJob>>& jobs,
                                    const DiagnosisOptions& options) {
  ReplicasDiagnosis all;
  std::vector<Progress> progress;
  int64_t newest = 0;
  uint32_t members = 0;
  for (const auto& job : jobs) {
    progress.push_back(progress_of(job.second));
    all.replicas.push_back({name_of(job), progress.back().view, diagnose(job.second, options)});
    for (const RankTrace& t : job.second.ranks)
      if (t.view.view > newest) newest = t.view.view, members = t.view.members;
  }
  std::vector<size_t> live;  // in the newest view
  for (size_t i = 0; i < jobs.size(); ++i)
    if (newest > 0 && progress[i].view == newest) live.push_back(i);
  const auto place = [&](size_t i) { return progress[i].place(); };
  std::vector<std::string> waiting;      // replicas that wait for a sum or a vote
  const RankSummary* longest = nullptr;  // the rank that has waited longest
  std::string longest_of;                // its replica
  const auto behind = std::ranges::min_element(live, {}, place);
  for (const size_t i : live) {
    if (place(i) == place(*behind)) continue;
    const RankSummary* waits = nullptr;
    for (const RankSummary& s : all.replicas[i].job.ranks)
      if (s.waits && (!waits || s.seconds > waits->seconds)) waits = &s;
    if (!waits || waits->seconds < options.patience) continue;
    waiting.push_back(all.replicas[i].name);
    if (!longest || waits->seconds > longest->seconds) longest = waits, longest_of = all.replicas[i].name;
  }
  const auto waits_at = [&](size_t i) {
    const RankSummary* const s = summary_of(all.replicas[i].job, progress[i].rank);
    return s && s->waits;
  };
  if (longest) {
    all.awaited = static_cast<int>(*behind);
    const ReplicaDiagnosis& r = all.replicas[*behind];
    all.sentences.push_back(str_cat(list(waiting), waiting.size() > 1 ? " wait" : " waits", " for replica ", r.name,
                                    ": ", fault_of(r.job, progress[*behind].rank), "; rank ", longest->rank,
                                    " of replica ", longest_of, formatted(" has waited %.2f s", longest->seconds),
                                    longest->last.substr(longest->last.find(' '))));
  } else if (newest == 0) {
    all.sentences.push_back("no replica has had a view: they wait for each other, or for the service of replicas");
  } else if (live.size() < members && std::ranges::any_of(live, waits_at)) {
    all.sentences.push_back(str_cat("view ", newest, " has ", members, " replicas, and records of ", live.size(),
                                    "; need the folder of each replica"));
  } else if (!live.empty() && std::ranges::all_of(live, [&](size_t i) { return progress[i].votes && waits_at(i); })) {
    all.sentences.push_back(
        str_cat("all replicas of view ", newest, " have entered one vote: they wait for the service of replicas"));
  } else {
    all.sentences.push_back(str_cat("no replica of view ", newest, " waits for another one"));
  }
  for (size_t i = 0; i < jobs.size(); ++i)
    if (newest > 0 && progress[i].view != newest)
      all.sentences.push_back(str_cat("replica ", all.replicas[i].name, " is not in view ", newest,
                                      ", and its last view is ", progress[i].view, ": ",
                                      fault_of(all.replicas[i].job, progress[i].rank)));
  for (std::string& s : all.sentences) s = one_line(s);
  return all;
}

}  // namespace weft::dist::diagnose
