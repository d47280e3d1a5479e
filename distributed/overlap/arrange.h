// What is done with the collectives of emitted graphs before they are planned: taken apart with their products,
// bucketed, overlapped. Every shape class gets what was decided for the first one, so that all ranks begin and end the
// same collectives in the same order.
#pragma once
#include <span>

#include "compiler/passes/pass.h"
#include "distributed/overlap/async_tp.h"
#include "distributed/overlap/bucket.h"
#include "distributed/overlap/overlap.h"

namespace weft::dist {

struct CommunicationOptions {
  bool bucket = true, overlap = true;
  AsyncTp async_tp = AsyncTp::kAuto;
  Network network = {};
  BucketOptions buckets = {};
  OverlapOptions overlapping = {};
};

/// What became of a graph's collectives.
struct CommunicationReport {
  int64_t before = 0, after = 0;  // number of collectives
  std::vector<int64_t> rings;     // sites of gathers and scatters made with their products, piece by piece
  Schedule plain, schedule;       // predicted: each collective where it stands, and as arranged; events left out
  std::vector<std::vector<int64_t>> buckets;  // sites that became one: that of the first
  std::vector<std::string> notes;
  /// What hides the collective of an emitted graph with this site: "dot at model.cc:50 and 3 more (0.12 of 0.30 ms
  /// exposed)", "in one with 5 others", or "" if unknown.
  std::string hidden_by(int64_t site) const;
  /// "collectives 60 -> 34; 1.20 of 2.00 ms exposed -> 0.30; ...".
  std::string to_string() const;
};

/// Numbers the collectives that ranks wait for at once: attribute {site}, 1, 2, ... in the graph's order. No two are
/// merged after that.
Ref<Graph> with_sites(const Graph& g);

/// The collectives of a graph in its order: "all_gather_start 3", "collective_wait 3", ...
std::vector<std::string> sequence_of_collectives(const Graph& g);

/// Throws kInternal, naming the first that differs, unless all graphs have the same sequence.
void check_same_sequence(std::span<const Ref<Graph>> classes);

/// Stage kArrange of the pipeline. Graphs made by with_sites (and passes that keep order); they are replaced.
CommunicationReport arrange_communication(const Mesh& mesh, std::span<Ref<Graph>> classes,
                                          const CommunicationOptions& options, const PassOptions& passes = {});

}  // namespace weft::dist
