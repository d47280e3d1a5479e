// A kernel of the loop IR as the GPU schedules want it: equal values are one, kept rows are just the values they hold,
// and all stores happen in the last loop, so that every loop before it only reads. A loop is then given by what it is
// for, and each schedule decides what it computes again and what stays in registers.
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
  std::vector<int> same;      // by instruction: the first that has its value
  std::vector<Loop> loops;    // in order; only the last has columns and stores
  std::vector<int> last;      // stores outside loops, after everything
  std::vector<int> stage;     // by instruction: the loop before which it can be computed, or in which (if in_loop)
  std::vector<bool> outside;  // by instruction: needed outside loops
  const loop_ir::Instr& at(int id) const { return kernel->instrs[same[id]]; }
  /// Computed at each position of a loop.
  bool in_loop(int id) const { return in_loop(at(id).level) && at(id).op != loop_ir::Op::kReduce; }
  static bool in_loop(loop_ir::Level l) { return l == loop_ir::Level::kStep || l == loop_ir::Level::kBoth; }

  /// Values that loop `l` computes, in order; those in `have` are taken as they are and not looked into.
  std::vector<int> closure(int loop, const std::vector<bool>& have) const;
  /// The same for these reductions, column sums and stores alone, and for `values` (which are in the list).
  std::vector<int> closure_of(const std::vector<int>& sinks, const std::vector<bool>& have,
                              const std::vector<int>& values = {}) const;
  bool has_reduces() const;
};

Form form_of(const loop_ir::Kernel& kernel);

}  // namespace weft::cuda
