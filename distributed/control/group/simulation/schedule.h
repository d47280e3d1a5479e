// Schedules of simulated runs of replicas: sizes, times and faults. Times are virtual milliseconds.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "distributed/control/group/group.h"

namespace weft::control {

/// A time that is drawn evenly from least, ..., least + count - 1.
struct TimeRange {
  int64_t least = 0;
  uint32_t count = 1;
};

/// A fault of a live replica that is drawn when the fault happens, or of the service.
struct GroupFault {
  enum class Kind {
    kCrash,    // its process dies, and is started again
    kStop,     // its process does not run for some time
    kCut,      // its collectives fail
    kBreak,    // it loses its connection to the service
    kService,  // the service dies, and restarts from its journal
    kLeave,    // it leaves for ever
  };
  Kind kind;
  int64_t at = 0;
};

struct GroupSchedule {
  std::mt19937_64 random;  // for all that the schedule leaves open
  GroupConfig config = {};
  int64_t steps = 0;                 // the run ends after these steps
  int64_t limit = 90000;             // a run that has not ended at this time is an error
  bool cut_at_limit = false;         // no error: the run is watched until then
  std::vector<int64_t> starts = {};  // when each replica starts
  std::vector<GroupFault> faults = {};

  double loss = 0, twice = 0, late = 0;  // shares of the messages; none is lost from loss_until on
  int64_t loss_until = 8000;
  double reported = 0.5;                     // the share of deaths that a launcher reports to the service
  double lives_on = 0.5;                     // the share of these deaths after which the process runs for up to 1 s
  double service_dies_with_view = 0;         // the share of new views with which the service dies before it sends them
  bool stopped_process_is_replaced = false;  // the replica of the first stopped process is started again

  TimeRange message{1, 10}, late_message{20, 1000};
  TimeRange compute{1, 30};     // a step before its sums
  TimeRange collective{1, 20};  // from the entry of the last member until a member has the result
  TimeRange failure{1, 10};     // from the end of a member until the collectives of another one fail
  TimeRange closed{1, 10};      // from the end of a connection until the service knows it
  TimeRange connect_again{1, 300};
  TimeRange death_report{0, 5};
  TimeRange form{0, 1};  // the groups of a view
  TimeRange heal{20, 300};
  TimeRange start_again{50, 3000};  // from a death until the next process joins; also of the service
  std::vector<int64_t> stops{10000, 1000};
};

/// The schedule of a seed: up to 8 replicas, perhaps one of them a spare, with faults of all kinds.
GroupSchedule schedule_of(uint64_t seed);

/// Replicas that fail again and again: one in each interval `between`, at a random time of it.
struct Drill {
  int64_t replicas = 4;
  int64_t time = 600000;
  int64_t between = 15000;
  int64_t step = 5;      // 3 or more
  int64_t form = 41;     // to form the groups of a view
  int64_t again = 1000;  // from the death of a process until the next one of its replica joins
  int64_t heal = 27;     // to transfer the state, during which all replicas wait
  enum class Fault {
    kReported,  // a process dies, and its launcher reports the death
    kClosed,    // a process dies, and the service knows it by its connection
    kStopped,   // a process stops, and continues `again` after the service counts it as gone
  };
  Fault fault = Fault::kReported;
};
GroupSchedule schedule_of(const Drill& drill, uint64_t seed);

}  // namespace weft::control
