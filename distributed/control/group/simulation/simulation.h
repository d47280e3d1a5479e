// Runs the shipped logic of service and leaders (group.h, member.h) in virtual time. A schedule gives the faults:
// messages are lost, repeated, late and out of order, connections break, processes crash, stop, are cut off, leave, and
// start again, many at once, and some are spares. A crash may be reported before the process ends. The service restarts
// from its journal. Checks I1 to I7 (group_explore_test.cc), and that all live replicas commit all steps and end before
// the limit of the schedule.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "distributed/control/group/simulation/schedule.h"

namespace weft::control {

struct GroupCounts {
  int64_t commits = 0;  // steps committed by a member
  int64_t retries = 0, doubts = 0, heals = 0, failed_heals = 0, views = 0, fenced = 0, messages = 0, crashes = 0,
          lived_on = 0, restarts = 0, begun_again = 0;
};

struct GroupRun {
  std::string problem = {};  // the check that failed; "": none
  int64_t ended = 0;         // when it ended, in virtual milliseconds
  GroupCounts counts = {};
  int64_t steps = 0;  // steps of the run
  int64_t parts = 0;  // the parts of the data that these steps took: one for each member and step
  int64_t lost = 0;   // steps that were begun and not committed, or cancelled
  /// The longest time between two steps if a view with a replica that heals begins in it, and otherwise; milliseconds.
  int64_t longest_of_heal = 0, longest = 0;
  /// Times and parts at the first and the last step of each view; between them, parts grow evenly.
  std::vector<std::pair<int64_t, int64_t>> progress = {};
  std::vector<std::string> log = {};  // the events, if it was asked for
};
GroupRun simulate(const GroupSchedule& schedule, bool log = false);

struct SeedRuns {
  int64_t schedules = 0;
  int64_t longest = 0;  // virtual milliseconds of the longest run
  GroupCounts counts = {};
  std::vector<std::pair<uint64_t, std::string>> failures = {};  // seeds and problems
};
/// Runs the schedules of the seeds first, first + 1, ... on `threads` threads, each up to `limit` milliseconds. Ends
/// after three failures.
SeedRuns simulate_seeds(uint64_t first, int64_t schedules, int threads, int64_t limit = GroupSchedule().limit);
/// The counts as one sentence of three lines.
std::string text_of(const SeedRuns& runs);

}  // namespace weft::control
