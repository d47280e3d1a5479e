// A job of simulated ranks on a virtual clock, which leaves the records that real ranks leave.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "distributed/diagnose/job.h"

namespace weft::dist::diagnose {

/// What a rank does next.
struct Action {
  enum Kind { kCompute, kStart, kWait, kBegin, kEnd, kDie, kStop, kThrow, kExit } kind = kCompute;
  int64_t ns = 0;                              // kCompute
  PlannedRow row = {};                         // kStart, kWait
  uint16_t plan = 0;                           // kStart, of the step; kBegin, kEnd of a step
  flight::Phase phase = flight::Phase::kStep;  // kBegin, kEnd
};

struct SimulationOptions {
  std::string mesh = "dp2,tp2";
  int64_t timeout = 600'000'000'000;  // ns of a wait
  std::optional<int64_t> look;        // the job is looked at then, while it runs
  bool killed = false;                // at `look`, all processes are killed at once
  uint32_t capacity = flight::kCapacity;
};

/// Runs the scripts of all ranks.
Job simulate(const std::vector<std::vector<Action>>& scripts, const PlannedStep& plan, const SimulationOptions& o);

}  // namespace weft::dist::diagnose
