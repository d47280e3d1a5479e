// All meshes, schedules and options for a number of GPUs: what fits into memory, by predicted time, and why the others
// lose.
#pragma once
#include <map>
#include <optional>

#include "tools/plan/step_cost.h"

namespace weft::planner {

struct Planned {
  Candidate candidate;
  StepCost cost;
};

/// A mesh that is not the best: why.
struct Rejected {
  std::string plan, why;  // of a plan that is slower: than the best, both by simulation or both by closed forms
  bool fits = true;
  double step = 0, memory = 0;  // of its best candidate
};

struct Search {
  std::vector<Planned> best;       // by mesh the fastest that fits, the fastest first; times are simulated
  std::vector<Rejected> rejected;  // other meshes, the fastest first; then those that fit nowhere, by memory
  int64_t candidates = 0, uneven = 0;
  int64_t too_large = 0;    // of those that were priced, and that cannot fit by their bounds
  double least_memory = 0;  // of all candidates, if none fits
  std::string least_plan;
  std::string uneven_why;  // the first candidate that does not divide, and what does not
};

/// What the search may not vary; 0 or empty: it varies everything.
struct Fixed {
  std::map<std::string, int> dimensions;  // of the mesh, all six
  std::string schedule;                   // of meshes with pp alone
  int64_t microbatches = 0;
  std::optional<bool> recompute;
};

/// `keep` plans, of which the times are simulated; which one is the best does not depend on `keep`.
Search search_plans(const Workload& setup, const Fixed& fixed = {}, size_t keep = 10);

/// "bubble 0.21 s, exposed tp 0.10 s": the parts of a step that are larger than those of `best`.
std::string why_slower(const StepCost& cost, const StepCost& best);

/// A batch near `asked` that shares a large divisor with the number of GPUs: at most 5 % away.
int64_t batch_for(int64_t asked, int gpus);

}  // namespace weft::planner
