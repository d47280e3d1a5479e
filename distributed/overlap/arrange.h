// Arranges the collectives of the ranks' graphs: rings with their products (async_tp.h), buckets (bucket.h), overlap
// (overlap.h). All decisions are made on the first shape class and applied to every class, so that all ranks start and
// wait for the same collectives in the same order.
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
  Machine machine = machine_preset("cpu");  // the schedule uses its links and rates
  BucketOptions buckets = {};
  OverlapOptions overlapping = {};
};

/// How the collectives of a graph were arranged.
struct CommunicationReport {
  int64_t before = 0, after = 0;              // number of collectives
  std::vector<int64_t> rings;                 // sites of the gathers and scatters that became rings with their products
  std::map<int64_t, int64_t> ring_steps;      // site of a ring's permute_ranks -> site of the replaced collective
  OverlapSchedule plain, schedule;            // predicted times without overlap, and as arranged; without events
  std::vector<std::vector<int64_t>> buckets;  // sites of each bucket's members; the bucket keeps the first
  std::vector<std::string> notes;             // sentences for reports
  /// "collectives: 60, after bucketing 34; memory before fusion 512 -> 640 bytes". Without
  /// times: the plan report shows the times that plan/estimate.h predicts for the arranged graph.
  std::string to_string() const;
};

/// Numbers the blocking collectives: attribute {site}, 1, 2, ... in the graph's order. Later passes merge no two nodes
/// with different sites.
Ref<Graph> with_sites(const Graph& g);

/// The collectives of a graph in its order: "all_gather_start 3", "collective_wait 3", ...
std::vector<std::string> sequence_of_collectives(const Graph& g);

/// Throws kInternal if the graphs have different sequences of collectives, and names the first difference.
void check_same_sequence(std::span<const Ref<Graph>> classes);

/// Stage kArrange of the pipeline: arranges and replaces `classes`, one graph for each shape class, with the sites of
/// with_sites.
CommunicationReport arrange_communication(const Mesh& mesh, std::span<Ref<Graph>> classes,
                                          const CommunicationOptions& options, const PassOptions& passes = {});

}  // namespace weft::dist
