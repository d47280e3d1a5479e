// Cuts the graph of one microbatch into pipeline stages: assigns each node to a stage and an action.
// Forward nodes of a stage read results of this stage and of earlier ones. Backward nodes of a stage read results of
// backward nodes of this stage and of later ones, and forward results that are on the stage for its own forward nodes.
// If no stage has all the forward results of a backward node, the missing results are sent to its stage.
#pragma once
#include <string>
#include <vector>

#include "compiler/cost/machine/machine.h"
#include "distributed/pipeline/table.h"
#include "framework/ir/graph.h"

namespace weft::dist {

/// A node of a graph with microbatch_sum nodes.
struct StageOf {
  enum Region : uint8_t {
    kFree,     // follows from arguments, positions, random numbers and 0-d state: each stage computes its own
    kOutside,  // follows from parameters or by expensive ops, not from microbatches: computed once where read
    kStage,    // computed by `stage` for each microbatch, in its F or, with `backward`, in its B
    kAfter,    // follows from the sums over all microbatches
  } region = kFree;
  bool backward = false;
  bool weight = false;  // `backward` only: no other stage waits for it, so it is in W if the schedule has I and W
  bool may_recompute = false;  // forward only: its stage may compute it again in I, W and B (recomputed.h)
  int stage = -1;
};

struct StageCut {
  int stages = 1;
  std::vector<StageOf> nodes;
  std::vector<double> seconds;     // stage -> an estimate of F and B for one microbatch
  double largest_piece = 0;        // seconds of F and B of the largest piece without a place to cut
  bool fits = true;                // false: no cut is estimated to fit in CutOptions::memory
  std::vector<std::string> first;  // stage -> its first forward node, "model/blocks.2: dot at model.cc:50""
};

struct CutOptions {
  int stages = 1;
  /// Modules with which stages 1, 2, ... begin, each as a part of its scope, "blocks.3". Empty: stages begin where the
  /// step calls stage_boundary(); without such calls the cut is chosen.
  std::vector<std::string> begins = {};
  Machine machine = machine_preset("cpu");  // the machine of the estimates
  /// Memory limit of a rank in bytes, which a chosen cut respects if possible; 0: no limit. A stage needs its
  /// parameters; the gradients and optimiser state of trained parameters; and for each live microbatch the forward
  /// values that backward reads.
  int64_t memory = 0;
  std::vector<double> alive = {};  // stage -> microbatches between F and the end of backward, with `memory`
  int stages_of_rank = 1;
  std::vector<bool> may_recompute = {};  // node -> backward need not read it
};

/// The work of the largest stage may be up to kUnevenStages times the least possible, if fewer bytes then cross the
/// boundaries.
constexpr double kUnevenStages = 1.1;

/// Cuts the forward nodes, in their order, into stages of about equal work at places where few bytes cross. If no cut
/// fits into options.memory, it ignores the limit. Inputs of
/// the graph from number `arguments` on are slices of a microbatch. Throws InvalidArgument if the graph has fewer
/// places to cut than the stages need, or for a wrong module in `begins`.
StageCut cut_stages(const Graph& g, size_t arguments, const CutOptions& options);

/// Two stages that exchange values, and the values that they exchange for each microbatch.
struct Crossing {
  pipeline::StageLink link;
  std::vector<Value> forward;  // results of F of link.from that link.to reads
  std::vector<Value>
      backward;  // results of link.to that backward nodes of link.from read; sent after I or B of link.to
  int64_t forward_bytes = 0, backward_bytes = 0;
};
/// All crossings, ordered by link.from, then by link.to.
std::vector<Crossing> crossings(const Graph& g, const StageCut& cut);

}  // namespace weft::dist
