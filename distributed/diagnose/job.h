// The content of a job's folder of flight records. Files may be damaged: an unreadable part becomes a note.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/diagnose/planned.h"
#include "framework/dispatch/rank/flight.h"

namespace weft::dist::diagnose {

enum class ProcessState : uint8_t { kUnknown, kRuns, kStopped, kGone };

/// The records of one rank. Times are ns of the clock of its host, plus `offset`.
struct RankTrace {
  int rank = 0, size = 0, pid = 0;
  std::string host, boot, mesh, failure, purpose;
  uint64_t process_start = 0, plan = 0;
  int failure_code = 0;
  int64_t monotonic = 0, real = 0;
  int64_t alive = 0;  // when its process last ran
  bool ended = false;
  int code = 0;
  std::vector<std::string> communicators;
  std::vector<uint64_t> started;  // communicator -> number of collectives of all its ranks, including lost records
  flight::ViewPlace view;         // the place of its replica
  uint64_t sums = 0;              // collectives over kReplicaAxis that the rank has started in this view
  std::vector<flight::Record> records;  // in order, without gaps
  uint64_t lost = 0;                    // number of older records that were overwritten
  uint64_t damaged = 0;                 // number of unreadable records
  ProcessState state = ProcessState::kUnknown;
  bool present() const { return pid > 0; }
};

struct TracedJob {
  int size = 0;
  std::vector<RankTrace> ranks;  // index: rank; ranks without a file are not present()
  std::map<std::pair<int, int>, std::shared_ptr<const PlannedStep>> plans;  // key: number and rank
  std::optional<int64_t> now;  // this host's monotonic clock, if processes of the job were examined on it
  std::vector<std::string> notes;
  std::string verdict;  // verdict of the launcher, which saw the processes; empty: none

  /// The planned sequence of a rank, or null.
  const std::vector<PlannedRow>* rows(int plan, int rank) const;
};

/// The file with TracedJob::verdict in a folder of flight records.
inline constexpr const char* kVerdictName = "verdict";

/// Reads the bytes of a ring. Throws InvalidArgument, naming `what`.
RankTrace parse_ring(std::string_view bytes, std::string_view what);
/// Reads a folder. `look`: also checks in /proc which processes of this host run. Throws if there is no ring.
TracedJob read_job(const std::string& folder, bool look = true);

}  // namespace weft::dist::diagnose
