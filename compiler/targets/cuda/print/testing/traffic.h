// For tests: the bytes that a launch moves according to its text, compared with the bytes of its operands and results;
// the operands that it reads or writes one by one although vectors were possible; and the bytes in flight on the
// device.
#pragma once
#include <string>
#include <vector>

#include "compiler/targets/cuda/print/plan.h"

namespace weft::cuda {

struct Traffic {
  std::string how;       // the first line of the text
  double arguments = 0;  // bytes of operands and results, each element once
  double moved = 0;      // bytes that the text reads and writes; operands that are the same for all rows count once
  double under_way = 0;  // bytes that all concurrent thread blocks read before they use the first
  int64_t blocks = 0;
  int threads = 0;
  int resident = 0;                     // thread blocks per multiprocessor that threads and shared memory allow
  std::vector<std::string> one_by_one;  // operands that could use 16-byte accesses and do not
};

/// For the first launch of a group's plan. The plan must have notes.
Traffic traffic_of(const loop_ir::Lowered& low, const CudaLaunch& launch, const DeviceLimits& device = {});

/// The fault of a launch: it moves a tenth more than its arguments, or has one_by_one operands, or has less than 22 kB
/// in flight per multiprocessor, which the bandwidth of the device needs by Little's law. Empty if there is none or it
/// is small.
std::string fault_of(const Traffic& t, const DeviceLimits& device = {});

}  // namespace weft::cuda
