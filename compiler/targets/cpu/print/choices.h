// Choices that depend on the kernel alone: the arrangement of its loops, and which memory it prefetches or writes past
// the caches. No choice changes a result. The CUDA printer uses is_transposed and operations too.
#pragma once
#include "compiler/loop_ir/loop_ir.h"

namespace weft::codegen {

/// Operations of a kPw per point, as pointwise.inc counts them; 0 for other instructions.
int operations(const loop_ir::Instr& i);

/// An elementwise kernel that is bound by the latency of its dependent operations. It processes several vectors at
/// once.
bool is_long_chain(const loop_ir::Kernel& k);

/// The operand is contiguous along the last outer axis and strided along the lanes.
bool is_strided_along_lanes(const loop_ir::Kernel& k, size_t operand);
/// Whether the kernel runs in tiles of points x lanes, because it has such an operand. Line by line, each read of it
/// would fetch a new cache line.
bool goes_by_tiles(const loop_ir::Kernel& k);
/// Whether the operand is read through a transposed copy of each tile.
bool is_transposed(const loop_ir::Kernel& k, size_t operand);

/// In a kernel with several loops over a row, only the first loop would wait for memory. So the loop with the most
/// operations prefetches the next row; this returns it. Null in other kernels.
const loop_ir::KernelSegment* fetching_loop(const loop_ir::Kernel& k);
/// In such a kernel: the loop that prefetches the line to which a later loop stores. Null if no loop comes before the
/// store's own.
const loop_ir::KernelSegment* loop_before(const loop_ir::Kernel& k, const loop_ir::Instr& store);

/// An elementwise kernel with large results and long arithmetic between load and store: the hardware prefetcher sees
/// the next load too late.
bool fetches_ahead(const loop_ir::Kernel& k);

/// A store of whole cache lines. If the result is large, they may be written to memory without being read first.
bool may_be_far(const loop_ir::Kernel& k, const loop_ir::Instr& store);

}  // namespace weft::codegen
