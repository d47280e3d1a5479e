// The planned sequence of collectives of a compiled step, as a file beside the flight records. Diagnosis compares the
// records of each rank with it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/dispatch/rank/communicator.h"

namespace weft::dist::diagnose {

/// One collective of a rank.
struct PlannedRow {
  Collective kind = Collective::kBarrier;
  std::string axes;
  DType dtype = kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t bytes = 0;
  uint64_t site = 0;
  std::string phase;  // "forward", "backward", "update", "commit"
  std::string what;   // the tensor
  std::string line;   // "model.cc:12"
  std::string why;
  friend bool operator==(const PlannedRow&, const PlannedRow&) = default;
};

struct PlannedStep {
  int number = 0;     // Record::plan
  std::string mesh;   // Mesh::parse reads it
  uint64_t hash = 0;  // equal for equal plans of all ranks
  std::vector<std::vector<PlannedRow>> programs;
  std::map<int, int> program_of;  // key: rank; ranks of the process that wrote the file
};

/// The name of the file that the process with this first rank writes for a step.
std::string planned_name(int first_rank, int number);
std::string to_json(const PlannedStep& step);
/// Reads to_json(). Throws InvalidArgument, naming `what`.
PlannedStep parse_planned(std::string_view text, std::string_view what);

}  // namespace weft::dist::diagnose
