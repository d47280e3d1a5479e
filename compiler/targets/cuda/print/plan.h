// From loop IR to CUDA: the kernels that run a lowered group, each with its grid and the bytes of its parameters.
//
// Schedules, by what the kernel does (a file each):
//   flat     elementwise: a thread takes 16 bytes of each operand at a time, twice where it is light, in a grid-stride
//            loop; fewer where addresses or extents are no such multiples;
//   tiles    elementwise with operands that lie across the lanes: tiles of 32 x 32 go through padded shared memory;
//   rows     sums along rows: where they fit, rows come to shared memory once, 16 bytes at a time (staged_rows); 16
//            threads to a block of 1024 elements, so one half warp for a short row, up to 32 for a long one; results
//            leave in vectors. Else (rows) what several loops need of a row stays in registers where it fits;
//   columns  sums over rows: alone (column_sums), a thread has one of 16 classes of 1024 rows for neighbouring columns;
//            beside sums along rows, a block of threads has a class, whose rows come to shared memory in batches
//            (staged_columns; columns where they do not fit). A second kernel combines the classes;
//   across   sums along an axis that is not the lanes': 16 x 32 threads, or a thread for at most 16 steps;
//   split    few long rows: a half warp to each block of 1024, which comes to shared memory; a second kernel combines
//            neighbouring blocks.
// Positions are 32-bit where all extents and distances are below 2^30, else 64-bit.
// Order of sums: that of ops/numerics/reduce_order.h, in every schedule, whatever the grid or device: threads are its
// logical lanes. A sum of f32 has the bits of the CPU's, and no atomics are used.
// What launches move, in vectors or one by one, and whether enough is under way at once: traffic_test.
// Results may lie where Lowered::overwrites says, and on no other operand: what is read at an element is read before it
// is written, and other operands are read whenever it suits.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/loop_ir/lower_group.h"
#include "compiler/targets/cuda/intrinsics/kernel.h"

namespace weft::cuda {

struct DeviceLimits {
  int multiprocessors = 132;
  int max_shared_bytes = 99 * 1024;  // of a block, dynamic; the least of sm_80, sm_86, sm_90, sm_100
  int64_t max_grid_x = 2147483647;
};

struct PlanOptions {
  int alignment = 16;  // bytes that the operands' addresses (before Bound::offset) are multiples of
  bool notes = true;   // operands' names, the user's ops and lines, cost, as comments in the text
  bool wide = false;   // 64-bit positions even where 32 bits do (for tests)
  std::string symbol;  // of the kernels; empty: their names, or "kernel" without notes
};

/// An address that the caller writes into a launch's parameters.
struct Pointer {
  enum Kind : uint8_t { kOperand, kResult, kScratch, kBad } kind = kOperand;
  int index = 0;       // kOperand: of Lowered::bound, whose offset is added by the caller; kResult: output of the body
  int64_t offset = 0;  // kScratch: bytes from its start
  int at = 0;          // byte in the parameters
};

struct CudaLaunch {
  Kernel kernel;
  std::string key;  // the kernel's text without notes, its symbol "kernel": equal for kernels that are the same
  Grid grid;
  std::vector<char> params;  // bytes of the parameter struct, addresses zero
  std::vector<Pointer> pointers;
  bool empty() const { return grid.x == 0 || grid.y == 0; }  // nothing to do
};

/// Launches in stream order.
struct CudaPlan {
  std::vector<CudaLaunch> launches;
  int64_t scratch_bytes = 0;  // 256-byte aligned; need not be cleared
  bool reads_bad = false;     // kBad is an int32 that is set to 1 where an index is out of range; cleared by the caller
};

/// The launches of a lowered group whose results lie as `out` (those that are sums over rows or of long rows: densely).
/// Throws Error where no schedule fits the device (a row that is too long).
CudaPlan plan(const loop_ir::Lowered& low, std::span<const loop_ir::Layout> out, const DeviceLimits& device = {},
              const PlanOptions& options = {});

/// The device words of generated loops (loops.inc), which every kernel's text begins with.
const std::string& loop_intrinsics();

}  // namespace weft::cuda
