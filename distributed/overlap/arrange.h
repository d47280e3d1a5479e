// Arranges the collectives of emitted graphs before these are planned: splits them together with their products,
// buckets small ones and overlaps them with computation. Every shape class follows the decisions for the first one, so
// all ranks begin and end the same collectives in the same order.
#pragma once
#include <span>

#include "distributed/overlap/async_tp.h"
#include "distributed/overlap/bucket.h"
#include "distributed/overlap/overlap.h"

namespace weft::dist {

struct CommunicationOptions {
  bool bucket = true, overlap = true;
  AsyncTp async_tp = AsyncTp::kAuto;
  Machine machine = machine_preset("cpu");  // whose links and rates the schedule is made for
  BucketOptions buckets = {};
  OverlapOptions overlapping = {};
};

/// The arrangement of a graph's collectives.
struct CommunicationReport {
  int64_t before = 0, after = 0;  // number of collectives
  std::vector<int64_t> rings;     // sites of gathers and scatters made with their products, piece by piece
  Schedule plain, schedule;       // predicted: each collective where it stands, and as arranged; events left out
  std::vector<std::vector<int64_t>> buckets;  // sites that became one: that of the first
  std::vector<std::string> notes;
  /// The work that hides the collective with this site of an emitted graph: "dot at model.cc:50 and 3 more (0.12 of
  /// 0.30 ms exposed)", "in one with 5 others", or "" if unknown.
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

/// Graphs made by with_sites (and passes that keep order); they are replaced.
CommunicationReport arrange_communication(const Mesh& mesh, std::span<Ref<Graph>> classes,
                                          const CommunicationOptions& options);

}  // namespace weft::dist
