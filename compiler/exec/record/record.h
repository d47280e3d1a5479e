// StepRecord: one compiled step as data. It contains the launches with their work, time and place in the program, the
// memory, and the machine's rates. It is made from the plan, so it exists before the step has run. Times are measured
// from the second run on; they are 0 before. Reports, tools and benchmarks print it and compute none of it themselves.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/cost/machine/machine.h"
#include "framework/base/origin.h"
#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"
#include "framework/ir/phase.h"

namespace weft {

/// The kind of work of a launch, after its most expensive op (Ivanov et al.: Data Movement Is All You Need, 2021; they
/// call reductions with the ops after them statistical normalisation).
enum class WorkClass : uint8_t { kContraction, kNormalisation, kElementwise, kMovement, kCollective };
/// The resource that bounds the time of a launch on this machine.
enum class Bound : uint8_t { kMemory, kArithmetic, kProducts };

/// The phase of each node of a step's graph. Nodes of the gradient, and values computed again for it, are backward.
/// Other nodes that read them are updates, and so are values that only updates read, such as a power of the step count.
/// A fused node has the common phase of its results, else the phase of most of its operations.
std::vector<Phase> phases_of(const Graph& g);
/// The first class of collective, contraction, normalisation and elementwise that the node's op has, or an op of the
/// body of a fused node or loop; else movement.
WorkClass class_of(const Node& n);

/// "mul at model.cc:43", as MissedRecord names ops; without a line "mul".
std::string op_at_line(const Node& n);

const char* to_string(WorkClass kind);
const char* to_string(Bound bound);

/// One call of a kernel.
struct LaunchRecord {
  std::string name;   // name of the kernel, or of the op that runs alone
  std::string scope;  // "blocks.3.attn"; empty outside modules
  SourceLine line;    // line of the op, or of the kernel's main op
  Phase phase = Phase::kForward;
  WorkClass kind = WorkClass::kElementwise;
  Bound bound = Bound::kMemory;
  Cost work;                // planned; `at_most` if it depends on values
  std::string axes;         // mesh dimensions that a collective joins, "dp,tp""
  double sent = 0;          // bytes of a collective over the rank's link
  Cost done;                // for the values of the last call that counted it (Compiled::count_work)
  bool counted = false;     // `done` is known
  double predicted_us = 0;  // at the machine's rates
  double measured_us = 0;   // 0: not measured yet
  std::string ops;          // ops and line of a fused kernel, as "add, mul at model.cc:12"; else empty
  std::vector<TensorType> results;
  bool fused = false;
  bool copy = false;      // moves a value to its cell or output block
  bool in_place = false;  // a result has an operand's memory
  int32_t node = -1;      // node of graph("scheduled")
  int32_t kernel = -1;    // launches with one number call one kernel; -1: not fused

  /// The work by which times are predicted and sums made: `done` where it was counted, else the plan's.
  const Cost& known() const { return counted ? done : work; }
  /// Share of the roofline that the launch reaches: 1 at the machine's rates; 0 if it is not measured.
  double reached() const { return measured_us > 0 ? predicted_us / measured_us : 0; }
};

/// One block of memory of the step.
struct BufferRecord {
  std::string home;    // arena, constants, argument, cell, output or captured
  int32_t index = 0;   // index of the argument, cell, output block or captured tensor; a cell may have two buffers
  std::string owner;   // name of the cell, or the launch that writes it first, with its place
  int64_t bytes = 0;   // as the allocator counts them
  int64_t offset = 0;  // in the arena or among the constants
  int32_t first = -1, last = -1;  // launches that use it first and last; -1: none
};

/// A pass, or a part of planning, between the captured graph and the plan.
struct PassRecord {
  std::string name;
  double ms = 0;
  int32_t nodes_before = 0, nodes_after = 0;  // 0: it is not a function of one graph
  bool disabled = false;
};

/// Memory traffic of a copy, or of two kernels instead of one, and the reason.
struct MissedRecord {
  enum MissedKind : uint8_t { kCopy, kSeparateKernels } kind = kCopy;
  std::string from;  // a copy's source; else an op with its line, "mul at model.cc:43""
  std::string to;    // the op that is not in the kernel of `from`; empty for a copy
  std::string reason;
  double bytes = 0;   // bytes of all `times` together
  int32_t times = 1;  // number of equal records, from equal layers
  /// "1.05 MB  mul at model.cc:43 | sum at model.cc:50: they iterate over different points (4096 and 64), 12 times".
  std::string to_string() const;
};
const char* to_string(MissedRecord::MissedKind kind);

/// A step on one device, or one rank's part of a step on a mesh.
struct StepRecord {
  std::string title;  // name of the step; empty: unknown
  std::string device;
  std::string mesh;   // "dp2,tp2"; empty: one device
  int32_t rank = -1;  // rank of the mesh
  Machine machine;
  std::vector<PassRecord> passes;
  std::vector<LaunchRecord> launches;
  std::vector<std::string> kernels;  // their code, by LaunchRecord::kernel
  std::vector<MissedRecord> missed;  // copies and pairs of kernels, the 100 that cost most; most bytes first
  std::vector<BufferRecord> buffers;
  double step_us = 0;               // the fastest step without timed launches, set by callers that time steps; 0: none
  int64_t peak_bytes = 0;           // planned; equal to the measured peak
  int64_t measured_peak_bytes = 0;  // peak of the last step; 0: none has run
  int32_t peak_launch = -1;         // where most of the arena is live
  std::vector<int32_t> at_peak;     // buffers of the arena that are live there, the largest first

  /// The sums over the launches of a kind of work.
  struct WorkSum {
    Cost work;  // LaunchRecord::known()
    double predicted_us = 0, measured_us = 0;
    int32_t launches = 0;
    WorkSum& operator+=(const LaunchRecord& l);
  };
  /// Predicts the time and the bound of all launches at these rates, except a mesh's collectives.
  void predict(const Machine& rates);
  WorkSum sum() const;
  WorkSum sum(WorkClass kind) const;
  WorkSum sum(Phase phase) const;

  /// JSON: {"title"?, "device", "mesh"?, "rank"?, "machine", "passes": [...], "launches": [...], "kernels": [...],
  /// "missed": [...], "buffers": [...], "step_us"?, "peak_bytes", "measured_peak_bytes"?, "peak_launch", "at_peak"}.
  std::string to_json() const;
  /// The fields by the numbers of record_fields.cc (framework/io/fields/byte_fields.h), as a protobuf message has them.
  /// It contains the machine's rates without the links.
  std::string to_proto() const;
  /// Reads the bytes of to_proto(). Throws InvalidArgument with the place in the message, the value found and the value
  /// needed. Numbers must be finite and not negative, indices must be within their lists, and names must be known.
  static StepRecord from_proto(std::string_view bytes);
};

}  // namespace weft
