// Watch: reports, while a job runs, which rank the others wait for.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "distributed/diagnose/diagnosis.h"
#include "distributed/launch/flight_folder.h"
#include "framework/dispatch/flight.h"

namespace weft::dist {

class Watch {
 public:
  explicit Watch(const FlightFolder& folder) : folder_(folder) {}
  /// A sentence when a rank has waited for more than 2 s, which says for which other one and what that does; another
  /// one when it waits no longer; nothing else. Looks at most twice a second, at the last record of each rank; reads
  /// all records only when a rank waits. `last`: looks in any case. Never throws.
  std::optional<std::string> look(bool last = false);
  /// The fault, once a rank has left its plan and all ranks have waited in collectives for more than 2 s: they would do
  /// so until their deadline.
  const std::optional<diagnose::Diagnosis>& deadlock() const { return deadlock_; }

 private:
  struct Waiting {
    std::string path;       // of the records of a rank that waits
    flight::Record record;  // by which it began to
    int late = -1;          // the rank that it waits for
    bool shown = false;
  };
  std::optional<std::string> end();
  std::optional<std::string> begin();

  const FlightFolder& folder_;
  int64_t next_ = 0;  // time of the next look
  std::optional<diagnose::Diagnosis> deadlock_;
  std::optional<Waiting> waiting_;                       // of the last report
  std::map<std::pair<int, std::string>, int> reported_;  // how often, by rank and what it did
};

}  // namespace weft::dist
