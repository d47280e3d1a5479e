// For tests: what a launch moves through memory by its text, beside what its operands and results hold; which operands
// it reads or writes one by one where vectors would do; and how many bytes are under way at once on the device.
#pragma once
#include <string>
#include <vector>

#include "compiler/targets/cuda/print/plan.h"

namespace weft::cuda {

struct Traffic {
  std::string how;       // the first line of the text
  double arguments = 0;  // bytes of operands and results, each element once
  double moved = 0;      // bytes that the text reads and writes; what is the same for all rows counts once
  double under_way = 0;  // bytes that are read before the first is used, by all thread blocks that run at once
  int64_t blocks = 0;
  int threads = 0;
  std::vector<std::string> one_by_one;  // operands that could go by 16 bytes and do not
};

/// Of the first launch of a group's plan, which was made with notes.
Traffic traffic_of(const loop_ir::Lowered& low, const CudaLaunch& launch, const DeviceLimits& device = {});

/// What is wrong with it: more moved than the arguments by a tenth, one_by_one, or too little under way for what the
/// device could bring meanwhile (Little's law: 22 kB on each multiprocessor). Empty if nothing is, or if it is small.
std::string fault_of(const Traffic& t, const DeviceLimits& device = {});

}  // namespace weft::cuda
