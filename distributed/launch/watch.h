// Watch: reports, while a job runs, which rank the others wait for.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "distributed/diagnose/diagnosis.h"
#include "distributed/launch/flight_folder.h"
#include "framework/dispatch/rank/flight.h"

namespace weft::dist {

class Watch {
 public:
  explicit Watch(const FlightFolder& folder) : folder_(folder) {}
  /// Returns a sentence when a rank has waited for more than 2 s, with the awaited rank and its activity; another when
  /// the wait has ended; otherwise nothing. Reads the last record of each rank, at most twice a second, and all records
  /// only when a rank waits. `last`: reads regardless of the time. Never throws.
  std::optional<std::string> look(bool last = false);
  /// The fault, once a rank has left its plan and all ranks have waited in collectives for more than 2 s: they would
  /// wait until their deadline.
  const std::optional<diagnose::Diagnosis>& deadlock() const { return deadlock_; }

 private:
  struct WaitingRank {
    std::string path;       // path of the records of a rank that waits
    flight::Record record;  // the event that began the wait
    int late = -1;          // the rank that it waits for
    bool shown = false;
  };
  std::optional<std::string> end();
  std::optional<std::string> begin();

  const FlightFolder& folder_;
  int64_t next_ = 0;  // time of the next look
  std::optional<diagnose::Diagnosis> deadlock_;
  std::optional<WaitingRank> waiting_;                   // the wait of the last report
  std::map<std::pair<int, std::string>, int> reported_;  // number of reports, by rank and its activity
};

}  // namespace weft::dist
