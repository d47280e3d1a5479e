// Schedule: which axes of a domain become the outer points, the loop and the lanes of a kernel. It depends on the
// memory layout of the operands.
#pragma once
#include "compiler/loop_ir/domain.h"

namespace weft::loop_ir {

/// How an address moves along the domain's axes: of an operand, a result, a finished tile, or a position (iota).
struct Access {
  int64_t offset = 0;
  std::vector<int64_t> strides;  // index: axis of the domain; make_schedule changes them to axes of the kernel
  int64_t index_stride = 0;      // stride of the gathered dim, if there is one
  double weight = 1;             // bytes moved, to choose the lanes
};

struct Schedule {
  Mode mode = Mode::kRows;
  std::vector<std::vector<int>> axes;  // kernel axis -> the domain axes merged into it, major first
  std::vector<int64_t> extents;
  uint32_t loop = 0, lanes = 0;  // bit sets of the domain's axes
  uint32_t joined = 0;           // kSplit: the last outer axes, whose rows are parts of one reduction
  bool reduces = false;          // reductions run over `loop`
  std::vector<bool> is_column;   // index: expression
};

/// Chooses the mode and the axes, and rewrites the strides of the accesses to kernel axes. `accesses` holds all memory
/// that the kernel accesses. in_order: outer axes stay in the order of the domain. Throws Unfusable.
Schedule make_schedule(const Domain& d, std::vector<Access>& accesses, bool in_order = false);

}  // namespace weft::loop_ir
