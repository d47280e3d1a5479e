// PlanReport: a readable plan. It lists the placement of parameters and activations, every collective with its reason,
// and the predicted costs. A report is a value: it outlives its step.
#pragma once
#include <memory>

#include "distributed/plan/estimate.h"
#include "distributed/plan/mesh_plan.h"

namespace weft::dist {

struct PlannedCell {
  std::string name;
  TensorType type;        // type of the whole value
  std::string rest, use;  // "[4096@(tp,fsdp), 1024]"
  std::string why;
  int64_t bytes = 0;       // bytes of the largest shard
  int64_t copies = 1;      // number of ranks with equal shards
  bool parameter = false;  // else optimiser state and other cells
  /// Splits at use, as mesh dimension and dim; dim -1: a rule keeps the parameter whole along this mesh dimension.
  std::vector<std::pair<std::string, int>> split = {};
};

struct PlannedActivation {
  std::string name, spec, line;  // "blocks.0/attn: dot"
  int64_t bytes = 0;             // bytes on one rank
};

/// Sums over a rank's collectives of one kind over the same mesh dimensions.
struct CollectiveSum {
  std::string axes;
  Collective kind = Collective::kAllReduce;
  int64_t count = 0, bytes = 0;
  double sent = 0;  // bytes over the link of a rank: PlannedCollective::bytes times bus_factor
  double seconds = 0;
};

class PlanReport {
 public:
  PlanReport() = default;
  /// `exact_peak`: the planned peak of a compiled step's largest rank; 0: the peak is estimated.
  PlanReport(const MeshPartition& plan, const std::string& machine, int64_t exact_peak = 0);

  const Mesh& mesh() const { return mesh_; }
  const Plan& plan() const { return plan_; }
  /// The collectives of rank 0, in the order in which every rank starts them.
  const std::vector<PlannedCollective>& collectives() const { return collectives_; }
  /// The collectives of a rank. Throws OutOfRange for ranks outside of the mesh.
  const std::vector<PlannedCollective>& collectives(int rank) const;
  const std::vector<PlannedCell>& cells() const { return cells_; }
  /// The parameters among cells().
  std::vector<PlannedCell> parameters() const;
  const std::vector<PlannedActivation>& activations() const { return activations_; }
  /// The placement of the first result of each node of the joint graph, "[4096@(tp,fsdp), 1024]"; empty: none.
  const std::vector<std::string>& placements() const { return placements_; }
  std::vector<CollectiveSum> totals() const;
  const Estimate& estimate() const { return estimate_; }
  const std::string& machine() const { return machine_; }
  int64_t peak_bytes() const { return (exact_peak_ ? exact_peak_ : estimate_.peak_bytes) + kept_bytes_; }
  bool peak_is_exact() const { return exact_peak_ > 0; }
  /// Adds to the peak of a rank a copy of its cells that the program keeps.
  void keep_cells() { kept_bytes_ += estimate_.cell_bytes; }
  const std::vector<std::string>& notes() const { return notes_; }
  /// The stages, the bubbles and the memory of a pipeline, as text; empty without pp.
  const std::string& pipeline() const { return pipeline_; }
  /// A hash, equal for plans with the same mesh, placements and collectives on all ranks.
  uint64_t hash() const;
  /// The report as text, about 60 lines for a transformer of any depth: equal layers share lines.
  std::string to_string() const;

  std::vector<RejectedCandidate> rejected;  // plans that Plan::automatic() rejected, best first

 private:
  Mesh mesh_;
  Plan plan_;
  std::string machine_;
  std::vector<PlannedCell> cells_;
  std::vector<PlannedActivation> activations_;
  std::vector<std::string> placements_;
  std::vector<PlannedCollective> collectives_;
  std::vector<int> class_of_;
  std::shared_ptr<const std::vector<std::vector<PlannedCollective>>> by_class_;
  std::string pipeline_;      // the cut, bubbles and memory, as text
  std::string pipeline_key_;  // the cut and the actions, for hash()
  std::vector<std::string> notes_;
  Estimate estimate_;
  int64_t exact_peak_ = 0, kept_bytes_ = 0;
};

}  // namespace weft::dist
