// Plan: where each value of a scheduled graph lives and what is launched in which order. Pure data, made from types
// alone: a plan needs no memory, so a model on meta can be planned. Every decision is fixed here; a replay only binds
// addresses.
//
// What the predicted peak counts, each block rounded up to 64 bytes as the allocators account it:
//   arena + folded constants + cells that the step reads or writes + one block per output + fresh cell storages.
// Not counted: arguments, captured tensors, and outputs of earlier calls that the caller still holds.
#pragma once
#include <memory>
#include <string>

#include "framework/dispatch/target.h"

namespace weft::internal {

class Operations;

enum class Home : uint8_t {
  kArena,     // bytes [offset, offset + bytes) of the arena
  kFolded,    // the same of the plan's constants, computed once when the plan is bound
  kArgument,  // memory of argument `index`
  kCell,      // value of cell `index` when the step starts
  kCellNew,   // its value when the step has run: the same memory unless the cell's storage has another holder
  kOutput,    // pooled block `index`
  kCaptured,  // memory of captured tensor `index`
};
inline constexpr int kHomes = 7;

/// A piece of memory; several values show it one after another (in place) or at once (views).
struct PlanBuffer {
  Home home = Home::kArena;
  int32_t index = 0;
  int64_t bytes = 0;
  int64_t offset = 0;
  int32_t first = -1, last = -1;  // launches that write and read it
};

/// How a value is seen.
struct Place {
  int32_t buffer = -1;
  int64_t offset = 0;  // bytes into the buffer
  TensorType type;
  Shape strides;
};

struct Launch {
  const OpDef* op = nullptr;
  int32_t node = -1;  // of the scheduled graph: attributes and line; a copy names the node whose value it copies
  bool copy = false;  // op is copy_op: moves a value to its cell or output block
  SmallVec<Place, 3> in;
  SmallVec<Place, 1> out;
  int32_t workspace = -1;                // buffer
  std::shared_ptr<Operation> operation;  // runs it
};

/// One result of the function.
struct PlanOutput {
  enum Kind : uint8_t { kBlock, kArgument, kCaptured } kind = kBlock;
  int32_t index = 0;  // kArgument, kCaptured
  Place place;        // kBlock
};

struct PlanCell {
  bool used = false;  // read or written by a launch
  bool read = false;
  bool written = false;
  int32_t first_write = -1;  // launch that writes it first, if in place
  bool direct = false;       // computed where it will stay; else copied there at the end
};

struct Plan {
  Ref<Graph> graph;  // scheduled
  std::vector<PlanBuffer> buffers;
  std::vector<Launch> setup;  // makes folded constants; run once
  std::vector<Launch> launches;
  std::vector<PlanOutput> outputs;
  std::vector<PlanCell> cells;
  std::vector<int64_t> output_blocks;  // bytes
  int64_t arena_bytes = 0;
  int64_t live_bytes = 0;  // least arena that any placement could have: the most bytes live at once
  int64_t folded_bytes = 0;
  int64_t setup_workspace = 0;
  int64_t fixed_bytes = 0;  // all that is counted but the arena, with every cell written in place
  Device device;
  int32_t commit_point = -1;       // of one of several ranks: the launch before which all agree that they can commit
  int64_t alignment = 64;          // of buffers in the arena and among the constants
  std::vector<std::string> notes;  // what could not be done, and why

  int64_t peak_bytes() const { return arena_bytes + fixed_bytes; }
};

/// Memory layout of one argument; arguments that are not contiguous are planned as they lie.
struct ArgumentLayout {
  Shape strides;
};

/// Bytes as the allocator counts them.
constexpr int64_t accounted(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }
constexpr int64_t aligned(int64_t bytes, int64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

/// The device that a graph runs on. Throws if part of it is on an accelerator and part elsewhere, naming an op of each.
Device device_of(const Graph& g);
/// Plans a graph whose nodes all have a kernel, or a view that is always possible. Launches are prepared, but their
/// kernels are not compiled. The arena is not laid out yet: its size is the least it can be. Throws CannotLower for a
/// fused node that cannot be one operation for the planned layouts.
Plan draft_plan(Ref<Graph> graph, std::span<const ArgumentLayout> arguments, Operations& operations);
/// Gives arena buffers their offsets.
void lay_out(Plan& plan);
/// The least arena that any placement could have.
int64_t bytes_live(const Plan& plan);
/// The name of a launch in reports: its operation's, else its op's.
const char* name_of(const Launch& launch);
/// The work of a launch: what reports, traces and predicted times count.
Cost cost_of(const Launch& launch, const Graph& g);
/// The distinct operations of a plan's launches, in order of first use.
std::vector<std::shared_ptr<Operation>> operations_of(const Plan& plan);

}  // namespace weft::internal
