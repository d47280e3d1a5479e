// A job of simulated ranks on a virtual clock. It leaves the same records as real ranks.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "distributed/diagnose/job.h"

namespace weft::dist::diagnose {

/// The next action of a rank.
struct Action {
  enum Kind { kCompute, kStart, kWait, kBegin, kEnd, kDie, kStop, kThrow, kExit } kind = kCompute;
  int64_t ns = 0;                              // kCompute
  PlannedRow row = {};                         // kStart, kWait
  uint16_t plan = 0;                           // the step's plan: kStart; kBegin and kEnd of a step
  flight::Phase phase = flight::Phase::kStep;  // kBegin, kEnd
};

struct SimulationOptions {
  std::string mesh = "dp2,tp2";
  int64_t timeout = 600'000'000'000;  // limit of a wait in ns
  std::optional<int64_t> look;        // time at which the running job is examined
  bool killed = false;                // whether all processes are killed at `look`
  uint32_t capacity = flight::kCapacity;
};

/// Runs the scripts of all ranks.
TracedJob simulate(const std::vector<std::vector<Action>>& scripts, const PlannedStep& plan,
                   const SimulationOptions& o);

}  // namespace weft::dist::diagnose
