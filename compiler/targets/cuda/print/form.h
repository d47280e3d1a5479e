// A loop IR kernel in the form that the GPU schedules need. Equal values are one value, kept rows are replaced by their
// values, and all stores are in the last loop, so the loops before it only read. A loop is then defined by its results,
// and each schedule decides which values it recomputes and which stay in registers.
#pragma once
#include <vector>

#include "compiler/loop_ir/loop_ir.h"

namespace weft::cuda {

struct Loop {
  std::vector<int> reduces, columns, stores;  // instructions
  bool empty() const { return reduces.empty() && columns.empty() && stores.empty(); }
};

struct Form {
  const loop_ir::Kernel* kernel = nullptr;
  std::vector<int> same;      // instruction -> the first one with the same value
  std::vector<Loop> loops;    // in order; only the last has columns and stores
  std::vector<int> last;      // stores outside loops, after all loops
  std::vector<int> stage;     // instruction -> the loop before which it can be computed, or in which (if in_loop)
  std::vector<bool> outside;  // instruction -> needed outside loops
  const loop_ir::Instr& at(int id) const { return kernel->instrs[same[id]]; }
  /// Whether it is computed at each position of a loop.
  bool in_loop(int id) const { return in_loop(at(id).level) && at(id).op != loop_ir::Op::kReduce; }
  static bool in_loop(loop_ir::Level l) { return l == loop_ir::Level::kStep || l == loop_ir::Level::kBoth; }

  /// The values that loop `l` computes, in order. Values in `have` are included, but not their operands.
  std::vector<int> closure(int loop, const std::vector<bool>& have) const;
  /// The same for these reductions, column sums and stores only, and for `values` (which are included).
  std::vector<int> closure_of(const std::vector<int>& sinks, const std::vector<bool>& have,
                              const std::vector<int>& values = {}) const;
  bool has_reduces() const;
};

Form form_of(const loop_ir::Kernel& kernel);

}  // namespace weft::cuda
