#include "distributed/diagnose/deviation.h"

#include <algorithm>
#include <map>

namespace weft::dist::diagnose {
namespace {

using flight::Event;
using flight::Record;
using CollectiveRows = std::vector<PlannedRow>;

// The collectives that a rank started in one run of a step.
struct StepRun {
  uint16_t plan = 0;
  uint32_t first = 0;  // position of starts[0]: older records may be lost
  std::vector<Record> starts;
  std::optional<Record> end;
};

class RunComparison {
 public:
  RunComparison(const RankTrace& t, const CollectiveRows& rows, const StepRun& run) : t_(t), rows_(rows), run_(run) {}

  std::optional<Deviation> first() const {
    for (size_t i = 0; i < run_.starts.size(); ++i) {
      const size_t p = run_.first + i;
      if (p >= rows_.size()) return Deviation{.fault = Fault::kExtra, .started = run_.starts[i], .rows = rows_.size()};
      if (!same(rows_[p], run_.starts[i]) || !difference(rows_[p], run_.starts[i]).empty()) return at(i, p);
    }
    const size_t done = run_.first + run_.starts.size();
    if (run_.end && run_.end->position == done && done < rows_.size())
      return Deviation{.fault = Fault::kNeverEntered,
                       .planned = &rows_[done],
                       .started = *run_.end,
                       .ended = true,
                       .skipped = static_cast<int>(rows_.size() - done),
                       .rows = rows_.size()};
    return {};
  }

 private:
  std::string_view axes(const Record& r) const {
    return r.communicator < t_.communicators.size() ? std::string_view(t_.communicators[r.communicator]) : "";
  }
  bool same(const PlannedRow& row, const Record& r) const {
    return row.kind == r.kind && row.site == r.site && row.axes == axes(r);
  }
  // The difference in the operands of the same collective.
  static std::string difference(const PlannedRow& row, const Record& r) {
    if (row.kind == Collective::kBarrier) return "";
    if (row.dtype != r.dtype) return "dtype";
    if (row.bytes != r.bytes) return "size";
    const bool combines = r.kind == Collective::kAllReduce || r.kind == Collective::kReduceScatter;
    return combines && row.op != r.op ? "operation" : "";
  }
  // The number of consecutive records, from the i-th on, that equal the rows from the p-th on.
  size_t equal(size_t i, size_t p) const {
    size_t n = 0;
    while (i + n < run_.starts.size() && p + n < rows_.size() && same(rows_[p + n], run_.starts[i + n])) ++n;
    return n;
  }

  // Record i is not row p. Returns the deviation that explains most of the following records; if several do, the first.
  Deviation at(size_t i, size_t p) const {
    const Record& r = run_.starts[i];
    const PlannedRow& row = rows_[p];
    Deviation d{.planned = &row, .started = r, .rows = rows_.size()};
    const auto mismatched = [&](std::string detail) {
      d.fault = Fault::kMismatched;
      d.detail = std::move(detail);
      return d;
    };
    if (same(row, r)) return mismatched(difference(row, r));
    if (row.site == r.site && row.axes == axes(r) && row.site != 0) return mismatched("kind");
    size_t best = 0;
    for (size_t q = p + 1; q < rows_.size(); ++q) {
      if (!same(rows_[q], r)) continue;
      if (const size_t n = equal(i, q); n > best) {
        best = n;
        d.fault = Fault::kNeverEntered;
        d.skipped = static_cast<int>(q - p);
      }
      // The rows between were started after it.
      const size_t between = equal(i + 1, p), all = std::min(between, q - p);
      const size_t n = 1 + all + (between >= q - p ? equal(i + 1 + all, q + 1) : 0);
      if (all > 0 && n > best) {
        best = n;
        d.fault = Fault::kMismatched;
        d.detail = "order";
      }
    }
    if (const size_t n = 1 + equal(i + 1, p); n > best) {
      best = n;
      d.fault = Fault::kExtra;
      d.detail.clear();
    }
    if (const size_t n = 1 + equal(i + 1, p + 1); n > best) {
      const std::string other = row.kind != r.kind ? "kind" : difference(row, r);
      return mismatched(other.empty() ? "order" : other);
    }
    return d;
  }

  const RankTrace& t_;
  const CollectiveRows& rows_;
  const StepRun& run_;
};

}  // namespace

std::optional<Deviation> deviation_of(const TracedJob& job, const RankTrace& t, int64_t time) {
  std::map<uint32_t, StepRun> runs;
  for (const Record& r : t.records) {
    if (r.run == 0 || r.plan == 0) continue;
    StepRun& run = runs[r.run];
    run.plan = r.plan;
    if (r.event == Event::kStart) {
      if (run.starts.empty()) run.first = r.position;
      run.starts.push_back(r);
    } else if (r.event == Event::kPhaseEnd) {
      run.end = r;
      if (run.starts.empty()) run.first = r.position;
    }
  }
  for (const auto& [number, run] : runs) {
    const CollectiveRows* const rows = job.rows(run.plan, t.rank);
    if (!rows) continue;
    // The records after the deviation show its kind.
    const auto d = RunComparison(t, *rows, run).first();
    if (d && d->started.time <= time) return d;
  }
  return {};
}

}  // namespace weft::dist::diagnose
