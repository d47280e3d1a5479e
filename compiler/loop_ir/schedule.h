// Schedule: which axes of a domain are outer points, loop and lanes of a kernel, once the memory layout of its operands
// is known.
#pragma once
#include "compiler/loop_ir/domain.h"

namespace weft::loop_ir {

/// An address as the domain's axes move it: an operand, a result, a finished tile, or a position (iota).
struct Access {
  int64_t offset = 0;
  std::vector<int64_t> strides;  // by axis of the domain; later by axis of the kernel
  int64_t index_stride = 0;      // of the gathered dim, if there is one
  double weight = 1;             // bytes moved, for the choice of lanes
};

struct Schedule {
  Mode mode = Mode::kRows;
  std::vector<std::vector<int>> axes;  // by kernel axis: the domain's axes it stands for, major first
  std::vector<int64_t> extents;
  uint32_t loop = 0, lanes = 0;  // bit sets of the domain's axes
  bool reduces = false;          // `loop` is what reductions run over
  std::vector<bool> is_column;   // by expression
};

/// Chooses mode and axes; rewrites the accesses' strides to kernel axes. `accesses` are all that the kernel touches.
/// in_order: outer axes stay in the order of the domain. Throws Unfusable.
Schedule make_schedule(const Domain& d, std::vector<Access>& accesses, bool in_order = false);

}  // namespace weft::loop_ir
