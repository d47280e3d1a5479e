// The whole pipeline as one list: every pass from a captured graph to a plan, on one device and on a mesh. A row
// without a function is a part of a pass, or not a function of one graph; then the file named in its stage runs it. To
// add a pass: its two files, one row here and one row in docs/architecture.md.
#pragma once
#include "compiler/passes/pass.h"

namespace weft {

enum class PassStage : uint8_t {
  kJoint,      // captured graph to joint graph
  kRecompute,  // keeps the plan within the memory budget
  kPlace,      // joint graph to one local graph for each class of ranks
  kLocal,      // cleans up a local graph
  kArrange,    // arranges the collectives of all local graphs
  kFused,      // joint or local graph to launches
  kPlan,       // launches in order, with memory
  kCommit,     // the plans of all ranks
};

struct PipelineStage {
  PassStage stage;
  const char* graph;  // Graph::stage after it, which names the files of WEFT_DUMP
  const char* when;
  const char* file;  // runs its rows
  std::span<const Pass> passes;
};

/// All stages in the order in which they run.
std::span<const PipelineStage> pipeline();

/// The rows of one stage, for run_passes.
std::span<const Pass> passes_of(PassStage stage);

/// The rows of all stages, in order: all names that may be disabled.
std::span<const Pass> all_passes();

}  // namespace weft
