#include "distributed/diagnose/diagnosis.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "distributed/diagnose/deviation.h"
#include "distributed/diagnose/late_entry.h"
#include "distributed/diagnose/trace.h"
#include "framework/base/one_line.h"

namespace weft::dist::diagnose {
namespace {

using flight::Event;
using flight::Record;

constexpr int64_t kHeartbeatLate = 5 * flight::kHeartbeat;

std::string seconds_text(int64_t ns) {
  return formatted("%.2f s", static_cast<double>(std::max<int64_t>(ns, 0)) * 1e-9);
}

class Analysis {
 public:
  Analysis(const TracedJob& job, const DiagnosisOptions& options)
      : job_(with_one_clock(job)),
        groups_(job_),
        patience_(static_cast<int64_t>(options.patience * kSecond)),
        slow_(static_cast<int64_t>(options.slow * kSecond)) {
    find_time();
    for (const RankTrace& t : job_.ranks) moments_.push_back(moment_at(t, time_));
  }

  Diagnosis run() {
    const bool found = other_plan() || deviation() || other_step() || unlike_collective() || own_failure() ||
                       ended_process() || cut_off() || blocked() || no_record() || late();
    if (!found) nothing();
    d_.notes.insert(d_.notes.end(), job_.notes.begin(), job_.notes.end());
    d_.launcher = job_.verdict;
    summarise();
    d_.sentence = one_line(d_.sentence);
    return std::move(d_);
  }

 private:
  // Converts the times of all ranks to the clock of the first rank's host.
  static TracedJob with_one_clock(TracedJob job) {
    const RankTrace* base = nullptr;
    for (const RankTrace& t : job.ranks)
      if (t.present() && (!base || (base->state == ProcessState::kUnknown && t.state != ProcessState::kUnknown)))
        base = &t;
    if (!base) return job;
    const int64_t zero = base->real - base->monotonic;
    const std::string boot = base->boot;
    for (RankTrace& t : job.ranks) {
      if (!t.present() || t.boot == boot) continue;
      const int64_t offset = t.real - t.monotonic - zero;
      if (std::abs(offset) > int64_t{1} << 60) continue;  // damaged
      t.alive += offset;
      for (Record& r : t.records) r.time += offset;
    }
    return job;
  }

  // Finds the moment of the diagnosis: the first failure, or else the last known moment.
  void find_time() {
    int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
    for (const RankTrace& t : job_.ranks) {
      if (!t.present()) continue;
      last = std::max(last, t.alive);
      if (!t.records.empty()) last = std::max(last, t.records.back().time);
      int64_t failure = first;
      Code code = failure_code_;
      for (const Record& r : t.records) {
        const bool fails = r.event == Event::kFailed || (r.event == Event::kEnd && r.outcome != 0);
        if (fails && r.time < failure) failure = r.time, code = static_cast<Code>(r.outcome);
        // The job continued after an earlier failure.
        if (r.event == Event::kPhaseEnd && r.phase == flight::Phase::kStep) failure = first;
      }
      if (failure < first) first = failure, failure_code_ = code;
    }
    failed_ = first != std::numeric_limits<int64_t>::max();
    now_ = job_.now ? std::max(*job_.now, last) : last;
    time_ = failed_ ? first : now_;
  }

  const RankTrace& trace(int rank) const { return job_.ranks[rank]; }
  const Moment& moment(int rank) const { return moments_[rank]; }

  std::string name(int rank) const {
    const RankTrace& t = trace(rank);
    if (!t.present()) return str_cat("rank ", rank);
    return str_cat("rank ", rank, " (host ", t.host.empty() ? "unknown" : t.host, ", pid ", t.pid, ")");
  }

  // ---- collectives ----

  std::string axes_of(const RankTrace& t, const Record& r) const {
    return r.communicator < t.communicators.size() ? t.communicators[r.communicator] : "?";
  }
  std::string text_of_record(const RankTrace& t, const Record& r) const {
    return text_of(r.kind, axes_of(t, r), r.dtype, r.bytes);
  }
  const PlannedRow* row_of(const RankTrace& t, const Record& r) const {
    const std::vector<PlannedRow>* const rows = job_.rows(r.plan, t.rank);
    if (!rows) return nullptr;
    const auto fits = [&](const PlannedRow& row) { return row.site == r.site && row.kind == r.kind; };
    if (r.position < rows->size() && fits((*rows)[r.position])) return &(*rows)[r.position];
    const auto it = std::find_if(rows->begin(), rows->end(), fits);
    return it == rows->end() ? nullptr : &*it;
  }
  // The number of the step's call to which a record belongs; 0: the record of its begin is lost.
  static uint32_t call_of(const RankTrace& t, const Record& r) {
    const auto begin = std::ranges::find_if(t.records, [&](const Record& b) {
      return b.event == Event::kPhaseBegin && b.phase == flight::Phase::kStep && b.run == r.run;
    });
    return begin == t.records.end() ? 0 : begin->number;
  }
  // "call 7 of compiled step 1".
  static std::string call_text(const RankTrace& t, const Record& r) {
    const uint32_t call = call_of(t, r);
    return str_cat(call ? str_cat("call ", call) : "a call", " of compiled step ", r.plan);
  }
  // "collective 5 of call 7 of compiled step 1".
  static std::string place_of(const RankTrace& t, const Record& r) {
    return str_cat("collective ", r.position + 1, " of ", call_text(t, r));
  }
  // "all_reduce dp f32 4096 bytes of W at model.cc:3 (collective 5 of call 7 of compiled step 1)".
  std::string describe(const RankTrace& t, const Record& r, const PlannedRow* row) const {
    std::string text = row ? text_of(row->kind, row->axes, row->dtype, row->bytes) : text_of_record(t, r);
    if (row && row->phase == "commit") text += ", the agreement of all ranks before they write";
    if (row && !row->what.empty()) text += str_cat(" of ", row->what);
    if (row && !row->line.empty()) text += str_cat(" at ", row->line);
    if (r.plan == 0) return str_cat(text, " (number ", r.number, ", outside of compiled steps)");
    return str_cat(text, " (", place_of(t, r), ")");
  }
  void set_collective(const RankTrace& t, const Record& r, const PlannedRow* row) {
    d_.collective = row ? text_of(row->kind, row->axes, row->dtype, row->bytes) : text_of_record(t, r);
    d_.site = row ? row->site : r.site;
    if (row) d_.tensor = row->what, d_.line = row->line;
    if (r.plan) d_.position = r.position, d_.call = call_of(t, r);
  }

  bool blame(Fault fault, int rank, std::string sentence, std::string detail = "") {
    d_.fault = fault;
    d_.rank = rank;
    d_.pid = trace(rank).pid, d_.host = trace(rank).host;
    d_.detail = std::move(detail);
    d_.sentence = std::move(sentence);
    return true;
  }

  // ---- the checks, most certain first ----

  // The rarest value, and a rank that has it; if there are two ranks, the rank other than 0.
  template <class T>
  static std::optional<int> odd_one(const std::map<int, T>& by_rank) {
    std::map<T, std::vector<int>> ranks;
    for (const auto& [rank, value] : by_rank) ranks[value].push_back(rank);
    if (ranks.size() < 2) return {};
    const auto least = std::min_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second.size(), -a.second[0]) < std::pair(b.second.size(), -b.second[0]);
    });
    return least->second[0];
  }

  // A rank whose value is not the value of `odd`, and its value.
  template <class T>
  static const std::pair<const int, T>& other_than(const std::map<int, T>& by_rank, int odd) {
    return *std::find_if(by_rank.begin(), by_rank.end(), [&](const auto& p) { return p.second != by_rank.at(odd); });
  }

  bool other_plan() {
    std::map<int, std::map<int, uint64_t>> hashes;  // keys: number, then rank
    for (const auto& [key, plan] : job_.plans) hashes[key.first][key.second] = plan->hash;
    for (const auto& [number, by_rank] : hashes) {
      const auto odd = odd_one(by_rank);
      if (!odd || !trace(*odd).present()) continue;
      return blame(Fault::kMismatched, *odd,
                   str_cat(name(*odd), " has planned step ", number,
                           " in another way than other ranks; all need the same program, flags and switches"),
                   "plan");
    }
    return false;
  }

  bool deviation() {
    std::map<int, Deviation> all;
    std::set<std::pair<uint64_t, uint32_t>> places;
    size_t planned = 0;
    for (const RankTrace& t : job_.ranks) {
      planned += t.present() && std::any_of(t.records.begin(), t.records.end(),
                                            [&](const Record& r) { return job_.rows(r.plan, t.rank) != nullptr; });
      if (auto d = deviation_of(job_, t, time_)) {
        places.emplace(d->started.site, d->started.position);
        all.emplace(t.rank, *d);
      }
    }
    // The plan does not cover the collectives of all ranks.
    if (all.empty() || (all.size() > 1 && all.size() == planned && places.size() == 1)) return false;
    const auto first = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.second.started.time < b.second.started.time;
    });
    report(trace(first->first), first->second);
    return true;
  }

  void report(const RankTrace& t, const Deviation& d) {
    const std::string place = place_of(t, d.started);
    const std::string started = str_cat(text_of_record(t, d.started), " (site ", d.started.site, ")");
    std::string planned;
    if (d.planned) {
      planned = text_of(d.planned->kind, d.planned->axes, d.planned->dtype, d.planned->bytes);
      if (!d.planned->what.empty()) planned += str_cat(" of ", d.planned->what);
      if (!d.planned->line.empty()) planned += str_cat(" at ", d.planned->line);
    }
    const std::string who = name(t.rank);
    if (d.ended) {
      blame(Fault::kNeverEntered, t.rank,
            str_cat(who, " never entered ", planned, ": it ended ", call_text(t, d.started), " after ",
                    d.started.position, " of ", d.rows, " collectives"));
    } else if (d.fault == Fault::kNeverEntered) {
      blame(d.fault, t.rank,
            str_cat(who, " never entered ", planned, ": it started ", started, " as ", place,
                    d.skipped > 1 ? str_cat(", and left out ", d.skipped) : "", "; or it changed their order"));
    } else if (d.fault == Fault::kExtra) {
      blame(d.fault, t.rank,
            str_cat(who, " started an extra ", started, " as ", place, ", where ",
                    d.planned ? str_cat("the plan has ", planned) : str_cat("the plan has ended after ", d.rows)));
    } else {
      blame(d.fault, t.rank,
            str_cat(who, " started ", started, " as ", place, ", where the plan has ", planned, "; another ", d.detail),
            d.detail);
    }
    set_collective(t, d.started, d.fault == Fault::kExtra ? nullptr : d.planned);
  }

  // Checks for ranks that run different steps.
  bool other_step() {
    std::map<uint32_t, std::map<int, uint16_t>> plans;  // keys: run, then rank
    for (const RankTrace& t : job_.ranks)
      for (const Record& r : t.records)
        if (r.time <= time_ && r.run && r.plan) plans[r.run][t.rank] = r.plan;
    for (const auto& [run, by_rank] : plans) {
      const auto odd = odd_one(by_rank);
      if (!odd) continue;
      const auto& other = other_than(by_rank, *odd);
      blame(Fault::kMismatched, *odd,
            str_cat(name(*odd), " called compiled step ", by_rank.at(*odd), " where rank ", other.first,
                    " called compiled step ", other.second, ", as call ", run,
                    " of all compiled steps; all ranks need the same host code"),
            "step");
      return true;
    }
    return false;
  }

  // Outside of plans: checks for ranks whose n-th collectives of a communicator differ.
  bool unlike_collective() {
    using CollectiveKey = std::pair<std::vector<int>, std::pair<std::string, uint32_t>>;
    std::map<CollectiveKey, std::map<int, std::tuple<Collective, DType, ReduceOp, int64_t>>> kinds;
    std::map<std::pair<CollectiveKey, int>, Record> records;
    for (const RankTrace& t : job_.ranks) {
      if (!t.present() || !failed_) continue;
      for (const Record& r : t.records) {
        if (r.event != Event::kStart || r.plan || is_transfer(r)) continue;
        const bool equal_sizes = r.kind == Collective::kBroadcast || r.kind == Collective::kAllReduce;
        const CollectiveKey key{groups_.members(t, r), {axes_of(t, r), r.number}};
        kinds[key][t.rank] = {r.kind, r.dtype, r.op, equal_sizes ? r.bytes : 0};
        records[{key, t.rank}] = r;
      }
    }
    for (const auto& [key, by_rank] : kinds) {
      const auto odd = odd_one(by_rank);
      if (!odd) continue;
      const auto& other = other_than(by_rank, *odd);
      const Record &r = records.at({key, *odd}), &o = records.at({key, other.first});
      const auto alike = static_cast<size_t>(
          std::count_if(by_rank.begin(), by_rank.end(), [&](const auto& p) { return p.second == other.second; }));
      const std::string lonely = alone();
      blame(Fault::kMismatched, *odd,
            str_cat(name(*odd), " started ", describe(trace(*odd), r, nullptr), ", and rank ", other.first, " ",
                    text_of_record(trace(other.first), o),
                    !lonely.empty()              ? str_cat("; ", lonely)
                    : 2 * alike > by_rank.size() ? "; most ranks did the same"
                                                 : "; no plan says which is right"),
            r.kind != o.kind     ? "kind"
            : r.dtype != o.dtype ? "dtype"
            : r.bytes != o.bytes ? "size"
                                 : "operation");
      set_collective(trace(*odd), r, nullptr);
      return true;
    }
    return false;
  }

  // A sentence if a rank calls a collective of the host and another does not, as under if (is_first()); else nothing.
  std::string alone() const {
    for (const RankTrace& t : job_.ranks) {
      if (t.purpose.empty()) continue;
      const auto other =
          std::ranges::find_if(job_.ranks, [&](const RankTrace& o) { return o.present() && o.purpose != t.purpose; });
      if (other == job_.ranks.end()) continue;
      return str_cat(name(t.rank), " is in ", t.purpose, ", which is a collective, and rank ", other->rank, " is not",
                     other->purpose.empty() ? "" : str_cat(", but in ", other->purpose),
                     ": call it on all ranks (save, state_dict and item too), not under if (is_first())");
    }
    return "";
  }

  // When a rank failed by itself: by this time or, if others wait for it, later. An error that leaves the rank's step
  // ends the collectives of the others first.
  std::optional<int64_t> failure_of(const RankTrace& t) const {
    const auto own = [](const Record& r) {
      const auto code = static_cast<Code>(r.outcome);
      return code != Code::kAborted && code != Code::kUnavailable;  // these codes follow from another failure
    };
    const Moment& m = moment(t.rank);
    if (m.failed_itself && m.last && own(*m.last)) return m.last->time;
    if (!failed_ || m.waits || !is_awaited(t.rank)) return {};
    for (const Record& r : t.records) {
      if (r.time <= time_) continue;
      if (r.event == Event::kFailed && own(r)) return r.time;
      if (r.event == Event::kStart) break;
    }
    return {};
  }

  bool own_failure() {
    std::optional<std::pair<int64_t, int>> first;
    for (const RankTrace& t : job_.ranks) {
      const auto time = failure_of(t);
      if (time && (!first || std::pair(*time, t.rank) < *first)) first = {*time, t.rank};
    }
    if (!first) return false;
    const int rank = first->second;
    return blame(
        Fault::kFailed, rank,
        str_cat(name(rank), " failed", doing(rank), trace(rank).failure.empty() ? "" : ": ", trace(rank).failure));
  }

  // " in phase checkpoint", " in call 7 of compiled step 1 after ...".
  std::string doing(int rank) const {
    const RankTrace& t = trace(rank);
    const Moment& m = moment(rank);
    if (m.waits)
      return str_cat(" in ", m.waits->plan || t.purpose.empty() ? "" : str_cat(t.purpose, ", "),
                     describe(t, *m.waits, row_of(t, *m.waits)));
    std::string text;
    if (!m.phases.empty() && m.phases.back().phase != flight::Phase::kStep)
      return str_cat(" in phase ", m.phases.back().phase);
    if (!m.phases.empty()) text = str_cat(" in ", call_text(t, m.phases.back()));
    if (m.done) text += str_cat(" after ", describe(t, *m.done, row_of(t, *m.done)));
    return text;
  }

  // Checks for processes that are stopped, or had ended when the others failed.
  bool ended_process() {
    int64_t newest = 0;
    bool others = false;  // some rank continues, or has reported a failure
    for (const RankTrace& t : job_.ranks) {
      if (!t.present()) continue;
      newest = std::max(newest, t.alive);
      others |= t.state == ProcessState::kRuns || t.state == ProcessState::kStopped || (t.ended && t.code != 0);
    }
    for (const RankTrace& t : job_.ranks)
      if (t.state == ProcessState::kStopped && !t.ended)
        return blame(Fault::kStopped, t.rank,
                     str_cat(name(t.rank), " has been stopped by a signal for ", seconds_text(now_ - t.alive),
                             doing(t.rank), waiters(t.rank)));
    // Others notice a death at once, and a stopped process at their deadline.
    for (const RankTrace& t : job_.ranks)
      if (failed_ && failure_code_ == Code::kDeadlineExceeded && t.present() && !t.ended &&
          time_ - t.alive > kHeartbeatLate)
        return blame(Fault::kStopped, t.rank,
                     str_cat(name(t.rank), " had not run for ", seconds_text(time_ - t.alive),
                             " and was not dead: it was stopped by a signal", doing(t.rank), waiters(t.rank)));
    // All ranks failed alike, as after a wrong flag: no rank is at fault.
    const bool all = std::all_of(job_.ranks.begin(), job_.ranks.end(),
                                 [](const RankTrace& t) { return !t.present() || (t.ended && t.code != 0); });
    std::optional<std::pair<int64_t, int>> first;
    for (const RankTrace& t : job_.ranks) {
      if (!t.present() || t.state == ProcessState::kRuns || t.state == ProcessState::kStopped) continue;
      const bool before = failed_ ? t.alive <= time_ : newest - t.alive > kHeartbeatLate;
      const bool alone = !failed_ && others && t.state == ProcessState::kGone && !t.ended;
      const bool dead = !t.ended && (before || alone);
      const bool exited = t.ended && t.alive <= time_ && ((t.code != 0 && (failed_ || !all)) || is_awaited(t.rank));
      if (!dead && !exited) continue;
      const std::pair<int64_t, int> at{t.alive, t.rank};
      if (!first || at < *first) first = at;
    }
    if (!first) return false;
    const int rank = first->second;
    const RankTrace& t = trace(rank);
    const bool unsure = !t.ended && t.state == ProcessState::kUnknown;
    blame(Fault::kDead, rank,
          str_cat(name(rank),
                  t.ended  ? str_cat(" exited with code ", t.code)
                  : unsure ? " died or was stopped"
                           : " died",
                  doing(rank), waiters(rank)));
    if (const Moment& m = moment(rank); m.waits) set_collective(t, *m.waits, row_of(t, *m.waits));
    return true;
  }

  // Checks for the rank that most others report as unreachable. If two ranks have lost each other, neither is more at
  // fault.
  bool cut_off() {
    std::map<int, std::vector<int>> lost_by;
    for (const RankTrace& t : job_.ranks) {
      const size_t end = t.failure.find(kUnreachable), begin = t.failure.rfind("rank ", end);
      // Only failures that the rank has seen itself count: a relayed report first names the reporting rank.
      if (end == t.failure.npos || begin == t.failure.npos || begin != t.failure.find("rank ")) continue;
      const int rank = std::atoi(t.failure.c_str() + begin + 5);
      if (rank >= 0 && rank < job_.size && rank != t.rank && trace(rank).present()) lost_by[rank].push_back(t.rank);
    }
    if (lost_by.empty()) return false;
    const auto& [rank, others] = *std::max_element(
        lost_by.begin(), lost_by.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::string names;
    for (int r : others) names += str_cat(names.empty() ? "" : ", ", name(r));
    const bool many = others.size() > 1;
    names += many ? ": their connections to it have ended, and its process ran on"
                  : " have lost their connection, and both processes ran on";
    return blame(Fault::kCutOff, rank, str_cat(name(rank), many ? " is cut off from " : " and ", names, waiters(rank)));
  }

  // A rank that waits for this one, or -1.
  int waiter_of(int rank) const {
    for (const RankTrace& t : job_.ranks) {
      const Moment& m = moment(t.rank);
      if (t.rank == rank || !m.waits) continue;
      const std::vector<int> missing = groups_.missing(t, *m.waits, time_);
      if (std::find(missing.begin(), missing.end(), rank) != missing.end()) return t.rank;
    }
    return -1;
  }
  bool is_awaited(int rank) const { return waiter_of(rank) >= 0; }

  // "; rank 0 waited for it in ...", or nothing.
  std::string waiters(int rank) {
    const int other = waiter_of(rank);
    if (other < 0) return "";
    const RankTrace& t = trace(other);
    const Record& r = *moment(other).waits;
    const PlannedRow* const row = row_of(t, r);
    set_collective(t, r, row);
    return str_cat("; rank ", other, " waited for it in ", describe(t, r, row));
  }

  // Starts at the rank that has waited longest, and follows the ranks for which each waits.
  bool blocked() {
    int at = -1;
    for (const RankTrace& t : job_.ranks) {
      const Moment& m = moment(t.rank);
      if (!m.waits || groups_.missing(t, *m.waits, time_).empty()) continue;
      if (at < 0 || m.waits->time < moment(at).waits->time) at = t.rank;
    }
    if (at < 0) return false;
    const int first = at;
    if (!failed_ && time_ - moment(first).waits->time < patience_) return false;
    std::set<int> seen;
    std::vector<int> missing;
    int waiter = at;
    while (seen.insert(at).second) {
      const Moment& m = moment(at);
      missing = m.waits ? groups_.missing(trace(at), *m.waits, time_) : std::vector<int>();
      if (missing.empty()) return enters_late(at, waiter);
      waiter = at;
      const auto present = std::find_if(missing.begin(), missing.end(), [&](int r) { return trace(r).present(); });
      if (present == missing.end()) return false;  // no_record()
      at = *present;
    }
    const auto in_step = [&](int rank) { return moment(rank).waits->plan != 0; };
    const auto inside = std::ranges::find_if(seen, in_step), outside = std::ranges::find_if_not(seen, in_step);
    const bool uneven = inside != seen.end() && outside != seen.end();
    if (uneven) at = *outside;
    const Record& r = *moment(at).waits;
    const std::string lonely = alone();
    blame(Fault::kNeverEntered, at,
          !lonely.empty() ? lonely
          : uneven ? str_cat("ranks made different numbers of calls of a step: ", name(at), " is", doing(at), ", and ",
                             name(*inside), " is", doing(*inside), "; need equal numbers of calls on all ranks")
                   : str_cat(name(at), " and other ranks wait for each other: it is", doing(at),
                             ", and no rank left its plan; a plan or a communicator has a defect"));
    set_collective(trace(at), r, row_of(trace(at), r));
    return true;
  }

  bool enters_late(int rank, int waiter) {
    const RankTrace &t = trace(rank), &w = trace(waiter);
    const Moment& m = moment(rank);
    const Record& r = *moment(waiter).waits;
    const PlannedRow* const row = row_of(w, r);
    set_collective(w, r, row);
    const std::string what = describe(w, r, row), waited = seconds_text(time_ - r.time);
    const std::string tail = str_cat("; rank ", waiter, " waited ", waited, " in it");
    if (!m.phases.empty() && m.phases.back().phase != flight::Phase::kStep) {
      const Record& phase = m.phases.back();
      return blame(Fault::kBusy, rank,
                   str_cat(name(rank), " is busy on the host in phase ", phase.phase, " for ",
                           seconds_text(time_ - phase.time), " and has not entered ", what, tail),
                   std::string(flight::to_string_view(phase.phase)));
    }
    const auto start = groups_.start_of(rank, w, r);
    const std::string since =
        m.last ? str_cat(" it has recorded nothing for ", seconds_text(time_ - m.last->time)) : "";
    if (start && *start > time_)
      return blame(Fault::kSlow, rank,
                   str_cat(name(rank), " is slow: it entered ", what, " ", seconds_text(*start - time_), " after rank ",
                           waiter, " had given up, which had waited ", waited));
    if (!failed_ && t.state == ProcessState::kRuns)
      return blame(
          Fault::kSlow, rank,
          str_cat(name(rank), " is slow: it runs", doing(rank), " and has not entered ", what, ";", since, tail));
    return blame(Fault::kNeverEntered, rank,
                 str_cat(name(rank), " never entered ", what, ":", since, doing(rank), tail));
  }

  bool no_record() {
    for (const RankTrace& t : job_.ranks)
      if (!t.present())
        return blame(Fault::kNeverEntered, t.rank,
                     str_cat("rank ", t.rank, " has no flight record that can be read: it never joined the job"));
    return false;
  }

  // Checks for collectives that one rank entered long after the others.
  bool late() {
    const LateEntry worst = latest_entry(job_, groups_, time_);
    if (worst.by < slow_ || worst.by == 0) return false;
    const RankTrace& t = trace(worst.rank);
    const PlannedRow* const row = row_of(t, worst.record);
    set_collective(t, worst.record, row);
    const std::string what = describe(t, worst.record, row);
    if (const auto phase = phase_during(t, worst.before, worst.record.time))
      return blame(Fault::kBusy, worst.rank,
                   str_cat(name(worst.rank), " was busy on the host in phase ", *phase, " and entered ", what, " ",
                           seconds_text(worst.by), " after the others; the job went on"),
                   std::string(flight::to_string_view(*phase)));
    return blame(Fault::kSlow, worst.rank,
                 str_cat(name(worst.rank), " is slow: it entered ", what, " ", seconds_text(worst.by),
                         " after the others; the job went on"));
  }

  void nothing() {
    const bool any = std::any_of(job_.ranks.begin(), job_.ranks.end(), [](const RankTrace& t) { return t.present(); });
    if (!any) {
      d_.sentence = "no fault found: there are no records";
    } else if (job_.now) {
      d_.sentence = "no fault found: the job runs, and every rank follows its plan";
    } else if (failed_) {
      d_.sentence = "no fault found: a collective failed, and every rank had followed its plan";
    } else {
      d_.sentence = "no fault found: every rank followed its plan until the records end";
    }
  }

  // ---- the table ----

  void summarise() {
    for (const RankTrace& t : job_.ranks) {
      if (!t.present()) continue;
      RankSummary s{.rank = t.rank, .pid = t.pid, .host = t.host, .waits = moment(t.rank).waits.has_value()};
      s.state = t.ended                             ? str_cat("exited ", t.code)
                : t.state == ProcessState::kRuns    ? "runs"
                : t.state == ProcessState::kStopped ? "stopped"
                : t.state == ProcessState::kGone    ? "gone"
                                                    : "unknown";
      const Moment& m = moment(t.rank);
      s.last = m.waits           ? str_cat(m.outcome ? "failed" : "waits", doing(t.rank))
               : m.failed_itself ? str_cat("failed", doing(t.rank))
               : m.last          ? str_cat("runs", doing(t.rank))
                                 : "nothing";
      if (m.last) s.seconds = static_cast<double>(time_ - (m.waits ? m.waits->time : m.last->time)) * 1e-9;
      d_.ranks.push_back(std::move(s));
      if (t.lost > 0 && t.records.size() < 2) d_.notes.push_back(str_cat("rank ", t.rank, ": older records are lost"));
    }
  }

  const TracedJob job_;
  const Groups groups_;
  const int64_t patience_, slow_;
  int64_t time_ = 0, now_ = 0;
  bool failed_ = false;  // time_ is the time of the first failure
  Code failure_code_ = Code::kInternal;
  std::vector<Moment> moments_;
  Diagnosis d_;
};

}  // namespace

Diagnosis diagnose(const TracedJob& job, const DiagnosisOptions& options) { return Analysis(job, options).run(); }

}  // namespace weft::dist::diagnose
