// From loop IR to CUDA: the kernels that run a lowered group, each with its grid and the bytes of its parameters.
//
// Schedules (a file each):
// - flat: elementwise. A thread processes 16 bytes of each operand at a time, twice if the kernel is light, in a
//   grid-stride loop. It takes fewer bytes if addresses or extents are not such multiples.
// - tiles: elementwise with operands transposed against the lanes. Tiles of 64 x 64 or 32 x 32 are in shared memory.
//   A thread reads its elements of all operands, in vectors, before it uses the first.
// - rows: sums along rows. Rows that fit are copied to shared memory once, 16 bytes at a time (staged_rows). 16 threads
//   take a block of 1024 elements: one half warp for a short row, up to 32 for a long one. Results are stored in
//   vectors. For other rows (rows), values that several loops need stay in registers if they fit.
// - columns: sums over rows. Alone (column_sums), a thread has one of 16 classes of 1024 rows, for neighbouring
//   columns. Together with sums along rows, a thread block has a class and copies its rows to shared memory in batches
//   (staged_columns; columns if they do not fit). A second kernel combines the classes.
// - across: sums along an axis other than the lane axis, with 16 x 32 threads, or one thread for at most 16 steps.
// - split: few long rows. A half warp takes each block of 1024, which is copied to shared memory. A second kernel
//   combines neighbouring blocks.
//
// Positions are 32-bit if all extents and distances are below 2^30, otherwise 64-bit.
//
// Every schedule sums in the order of ops/numerics/reduce_order.h, for any grid and device: threads are its logical
// lanes. So an f32 sum has the same bits as on the CPU. No atomics are used.
//
// traffic_test checks the bytes that launches move, in vectors or one by one, and whether enough bytes are in flight.
//
// A result may overwrite operands as Lowered::overwrites allows, and no others. The kernel reads an element of such an
// operand before it writes it. It may read other operands at any time.
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
  int max_shared_bytes = 99 * 1024;  // per block, dynamic; the least of sm_80, sm_86, sm_90, sm_100
  int64_t max_grid_x = 2147483647;
};

struct KernelTextOptions {
  int alignment = 16;        // the operands' addresses (before Bound::offset) are multiples of this many bytes
  bool notes = true;         // adds operand names, the user's ops and lines, and the cost to the text as comments
  bool wide = false;         // 64-bit positions even if 32 bits suffice (for tests)
  bool approximate = false;  // f32 functions by the hardware's approximations (approximations.inc)
  std::string symbol;        // symbol of the kernels; empty: their names, or "kernel" if there are no notes
};

/// An address that the caller writes into the parameters of a launch.
struct Pointer {
  enum PointerKind : uint8_t { kOperand, kResult, kScratch, kBad } kind = kOperand;
  int index = 0;       // kOperand: of Lowered::bound; the caller adds its offset. kResult: output of the body
  int64_t offset = 0;  // kScratch: bytes from its start
  int at = 0;          // byte offset in the parameters
};

struct CudaLaunch {
  Kernel kernel;
  std::string key;  // the kernel's text without notes, with the symbol "kernel": equal for equal kernels
  Grid grid;
  std::vector<char> params;  // bytes of the parameter struct; addresses are zero
  std::vector<Pointer> pointers;
  bool empty() const { return grid.x == 0 || grid.y == 0; }  // there is no work
};

/// Launches in stream order.
struct CudaLaunches {
  std::vector<CudaLaunch> launches;
  int64_t scratch_bytes = 0;  // 256-byte aligned; need not be cleared
  bool reads_bad = false;  // kBad is an int32 that the caller clears; kernels set it to 1 if an index is out of range
};

/// The launches of a lowered group whose results have the layouts `out` (results that are sums over rows or of long
/// rows: dense). Throws Error if no schedule fits the device (a row that is too long).
CudaLaunches plan(const loop_ir::Lowered& low, std::span<const loop_ir::ValueLayout> out,
                  const DeviceLimits& device = {}, const KernelTextOptions& options = {});

/// The device functions of generated loops (loops.inc), with which the text of every kernel starts; approximate: also
/// approximations.inc.
const std::string& loop_intrinsics(bool approximate = false);

}  // namespace weft::cuda
