// MemoryLayout: the memory of each value of a scheduled graph, and its launches in order. Pure data, made from types
// alone: a plan allocates nothing, so a model on meta can be planned. All decisions are made here; a replay binds
// addresses.
//
// The predicted peak is the sum of these, each block rounded up to 64 bytes as the allocators account it:
//   arena + folded constants + cells that the step reads or writes + one block per output + new storage of cells.
// It leaves out arguments, captured tensors, and outputs of earlier calls that the caller still holds.
#pragma once
#include <memory>
#include <string>

#include "framework/dispatch/device/target.h"

namespace weft::internal {

class Operations;

enum class Home : uint8_t {
  kArena,     // bytes [offset, offset + bytes) of the arena
  kFolded,    // this range of the block of constants, which is computed once when the plan is bound
  kArgument,  // memory of argument `index`
  kCell,      // value of cell `index` when the step starts
  kCellNew,   // its value after the step: the same memory, unless another handle holds the cell's storage
  kOutput,    // pooled block `index`
  kCaptured,  // memory of captured tensor `index`
};
inline constexpr int kHomes = 7;

/// A block of memory. Several values use it, one after another (in place) or at the same time (views).
struct MemoryBlock {
  Home home = Home::kArena;
  int32_t index = 0;
  int64_t bytes = 0;
  int64_t offset = 0;
  int32_t first = -1, last = -1;  // launches that write and read it
};

/// The memory of a value.
struct BufferPlace {
  int32_t buffer = -1;
  int64_t offset = 0;  // bytes into the buffer
  TensorType type;
  Shape strides;
};

struct Launch {
  const OpDef* op = nullptr;
  int32_t node = -1;  // node of the scheduled graph (attributes, line); a copy names the node whose value it copies
  bool copy = false;  // op is copy_op: moves a value to its cell or output block
  SmallVec<BufferPlace, 3> in;
  SmallVec<BufferPlace, 1> out;
  int32_t workspace = -1;                // buffer
  std::shared_ptr<Operation> operation;  // runs it
  const char* phase = "";                // phase of its node: "forward", "backward" or "update""
};

/// One result of the function.
struct OutputPlace {
  enum OutputKind : uint8_t { kBlock, kArgument, kCaptured } kind = kBlock;
  int32_t index = 0;  // kArgument, kCaptured
  BufferPlace place;  // kBlock
};

struct CellUse {
  bool used = false;  // read or written by a launch
  bool read = false;
  bool written = false;
  int32_t first_write = -1;  // launch that writes it first, if in place
  bool direct = false;       // its new value is computed in its memory; else it is copied there at the end
};

struct MemoryLayout {
  Ref<Graph> graph;  // scheduled
  std::vector<MemoryBlock> buffers;
  std::vector<Launch> setup;  // makes folded constants; run once
  std::vector<Launch> launches;
  std::vector<OutputPlace> outputs;
  std::vector<CellUse> cells;
  std::vector<int64_t> output_blocks;  // bytes
  int64_t arena_bytes = 0;
  int64_t live_bytes = 0;  // the most bytes live at once, a lower bound of arena_bytes
  int64_t folded_bytes = 0;
  int64_t setup_workspace = 0;
  int64_t fixed_bytes = 0;  // the peak without the arena, if every cell is written in place
  Device device;
  int32_t commit_point = -1;       // on a mesh: the launch before which all ranks agree that they can commit
  int64_t alignment = 64;          // alignment of buffers in the arena and among the constants
  std::vector<std::string> notes;  // optimisations that were not possible, with the reason

  int64_t peak_bytes() const { return arena_bytes + fixed_bytes; }
};

/// Memory layout of one argument. Arguments that are not contiguous are planned with their own strides.
struct ArgumentLayout {
  Shape strides;
  int32_t result = -1;  // the result of the same type that may take its memory (a carry of a loop); -1: none
};

/// Bytes as the allocator counts them.
constexpr int64_t accounted(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }
constexpr int64_t aligned(int64_t bytes, int64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

/// The device that a graph runs on. Throws if one part is on an accelerator and another is not; names an op of each.
Device device_of(const Graph& g);
/// Plans a graph whose nodes all have a kernel, or a view that is always possible. Launches are prepared, but their
/// kernels are not compiled. The arena is not laid out yet: its size is live_bytes. Throws CannotLower for a fused node
/// that cannot be one operation in the planned layouts.
MemoryLayout draft_plan(Ref<Graph> graph, std::span<const ArgumentLayout> arguments, Operations& operations);
/// Whether a result can be computed in the memory of an argument of its type: nothing reads the argument later.
bool fits_in_place(const MemoryLayout& plan, int32_t argument, const OutputPlace& result);
/// Finds the first and the last launch that uses each buffer.
void scan_uses(MemoryLayout& plan);
/// Gives arena buffers their offsets.
void lay_out(MemoryLayout& plan);
/// MemoryLayout::live_bytes.
int64_t bytes_live(const MemoryLayout& plan);
/// The bytes of the arena that are live during each launch.
std::vector<int64_t> live_by_launch(const MemoryLayout& plan);
/// The name of a launch in reports: its operation's, else its op's.
const char* name_of(const Launch& launch);
/// The work of a launch, for reports, traces and predicted times.
Cost cost_of(const Launch& launch, const Graph& g);
/// The distinct operations of a plan's launches, in order of first use.
std::vector<std::shared_ptr<Operation>> operations_of(const MemoryLayout& plan);

}  // namespace weft::internal
