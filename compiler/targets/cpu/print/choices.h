// What the printer chooses from a kernel alone, whatever the target: the arrangement of its loops, and which memory is
// fetched ahead or written past the caches. None of it changes a result.
#pragma once
#include "compiler/loop_ir/loop_ir.h"

namespace weft::codegen {

/// Operations that a kPw does at a point, as pointwise.inc counts them; 0 for other instructions.
int operations(const loop_ir::Instr& i);

/// An elementwise kernel that mostly waits for its own results: it goes over several vectors at once.
bool is_long_chain(const loop_ir::Kernel& k);

/// Neighbours of the operand along the last outer axis lie side by side, and those along the lanes do not.
bool lies_across(const loop_ir::Kernel& k, size_t operand);
/// A kernel with such operands goes by tiles of points and lanes: line by line, each read would bring in a cache line.
bool goes_by_tiles(const loop_ir::Kernel& k);
/// An operand that lies across is read by tiles, copied, and then read along the lanes.
bool is_turned(const loop_ir::Kernel& k, size_t operand);

/// Where a kernel has several loops over a row, only the first would wait for memory. The loop that computes most
/// fetches the next row meanwhile. Null elsewhere.
const loop_ir::Segment* fetching_loop(const loop_ir::Kernel& k);
/// There, the loop that fetches the line to which the store writes in a later one. Null: none comes before it.
const loop_ir::Segment* loop_before(const loop_ir::Kernel& k, const loop_ir::Instr& store);

/// An elementwise kernel of large results with so much between a load and a store that the machine does not see by
/// itself what is read next.
bool fetches_ahead(const loop_ir::Kernel& k);

/// A store of whole cache lines: where the result is large, they may go to memory without being read first.
bool may_be_far(const loop_ir::Kernel& k, const loop_ir::Instr& store);

}  // namespace weft::codegen
