// All meshes, schedules and options for a number of GPUs: plans that fit into memory, by predicted time, and why others
// lose.
#pragma once
#include <map>
#include <optional>

#include "tools/plan/step_cost.h"

namespace weft::planner {

struct PricedCandidate {
  Candidate candidate;
  StepCost cost;
};

/// A mesh that loses, and the reason.
struct Rejected {
  std::string plan, why;  // why a slower plan loses to the best: both by simulation or both by closed forms
  bool fits = true;
  double step = 0, memory = 0;  // values of its best candidate
};

struct Search {
  std::vector<PricedCandidate> best;  // the fastest fitting plan of each mesh, the fastest first; times are simulated
  std::vector<Rejected> rejected;     // other meshes, the fastest first; then meshes that do not fit, by memory
  int64_t candidates = 0, uneven = 0;
  int64_t too_large = 0;    // candidates that do not fit, by their memory or its bound
  double least_memory = 0;  // least memory of all candidates, if none fits
  std::string least_plan;
  std::string uneven_why;  // the first candidate that does not divide, and the reason
};

/// The values that the search keeps fixed; it varies values that are 0 or empty.
struct Fixed {
  std::map<std::string, int> dimensions;  // dimensions of the mesh; others are 1; empty: all meshes
  int replicas = 1;                       // replicas that may die, of all meshes to try; the search proposes no other
  std::string schedule;                   // for meshes with pp alone
  int64_t microbatches = 0;
  std::optional<bool> recompute;
  int64_t most_pp = 64;  // limit for all meshes to try
};

/// Finds `keep` plans and simulates their times; the best plan does not depend on `keep`.
Search search_plans(const Workload& setup, const Fixed& fixed = {}, size_t keep = 10);

/// "bubble 0.21 s, exposed tp 0.10 s": the parts of a step that exceed the parts of `best`.
std::string why_slower(const StepCost& cost, const StepCost& best);

/// A batch near `asked` that shares a large divisor with the number of GPUs: at most 5 % away.
int64_t batch_for(int64_t asked, int gpus);

}  // namespace weft::planner
