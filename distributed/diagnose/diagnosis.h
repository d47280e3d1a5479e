// Diagnosis: which rank of a job is at fault, and how. Each rank is compared with the planned sequence of its steps: if
// two ranks disagree, the diagnosis names the rank that does not follow the plan. A pure function of a TracedJob.
#pragma once
#include <string>
#include <vector>

#include "distributed/diagnose/job.h"

namespace weft::dist::diagnose {

enum class Fault : uint8_t {
  kNone,
  kNeverEntered,  // the others wait, or have waited, for the rank in a collective
  kExtra,         // it started a collective that is not planned
  kMismatched,    // it started a different collective: Diagnosis::detail names the difference
  kSlow,          // it enters collectives late
  kStopped,       // its process is stopped by a signal
  kDead,          // its process has ended
  kCutOff,        // its process runs, and other ranks have lost their connections to it
  kBusy,          // it works on the host: Diagnosis::detail is the phase
  kFailed,        // it reported an error
};
/// "none", "never entered", "extra", "mismatched", "slow", "stopped", "dead", "cut off", "busy on the host", "failed".
std::string_view to_string_view(Fault fault);

/// The last event of a rank.
struct RankSummary {
  int rank = 0, pid = 0;
  std::string host, state, last;
  double seconds = 0;  // time since then
  bool waits = false;  // `last` is an unfinished collective
};

struct Diagnosis {
  Fault fault = Fault::kNone;
  std::string detail;  // kMismatched: "kind", "size", "dtype", "operation", "order", "step", "plan"; kBusy: the phase
  int rank = -1, pid = 0;
  std::string host;
  std::string collective;    // "all_reduce dp f32 4096 bytes"; empty: none
  std::string tensor, line;  // tensor and line of the collective; empty: not known
  uint64_t site = 0;
  int64_t position = -1;  // position in the plan of the step
  uint32_t call = 0;      // number of the step's call; 0: not known
  std::string sentence;   // the diagnosis as one line
  std::string launcher;   // the verdict of the launcher (TracedJob::verdict)
  std::vector<std::string> notes;
  std::vector<RankSummary> ranks;

  /// "never entered: rank 1 ..."; if no fault is found, the sentence.
  std::string verdict() const;
  /// The launcher's verdict if it differs, the verdict, a table with the last event of each rank, and the notes.
  std::string to_string() const;
  std::string to_json() const;
};

struct DiagnosisOptions {
  double patience = 1;  // seconds that a rank may wait in a running job before the diagnosis examines the others
  double slow = 0.5;    // seconds that a rank may be late
};

Diagnosis diagnose(const TracedJob& job, const DiagnosisOptions& options = {});

}  // namespace weft::dist::diagnose
