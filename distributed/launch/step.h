// MeshStep: one captured step, partitioned over a mesh. Its ranks are threads of this process, or of the processes of a
// job (processes.h); each process has the shards of its own ranks. All ranks commit, or none does. A failed step tears
// only the cells that a rank has overwritten. If there are live replicas (live_replicas.h), the ranks are the ranks of
// one replica.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/exec/entry.h"
#include "distributed/launch/sharded_cell.h"
#include "distributed/launch/world.h"
#include "distributed/plan/report.h"

namespace weft::dist {

class MeshStep final : public internal::PartitionedStep {
 public:
  MeshStep(const Ref<Graph>& joint, const CompileOptions& options);
  ~MeshStep() override;
  std::vector<Tensor> run(std::span<const Tensor> args) override;
  std::string report() const override { return plan("cpu").to_string(); }
  StepRecord record(int rank) const override;
  PlanReport plan(const std::string& machine) const override;
  World& world() override;
  /// The shards of the cells, as the next run uses them. `made`: they have the values of the cells, as after a run.
  CellShards shards(bool made);
  const Graph* graph(const std::string& stage) const override;
  void fill(CompileStats& stats) const override;

 private:
  struct Ranks;
  int ranks() const { return static_cast<int>(places_.size()); }
  size_t program(size_t rank) const { return static_cast<size_t>(plan_.program_of(places_[rank])); }
  bool writes(size_t cell) const;
  ShardedCell::ShardLayout layout_of(size_t cell) const;
  [[nodiscard]] std::vector<int> shard_places() const;
  void plan_classes(const CompileOptions& options);
  void plan_stages(const CompileOptions& options);
  void plan_ranks(const CompileOptions& options);
  [[nodiscard]] std::optional<Error> shard_cells();
  std::vector<std::string> axes_used() const;
  std::vector<Tensor> joined_results(const std::vector<std::vector<Tensor>>& results) const;
  void save_for_diagnosis();
  [[noreturn]] void failed();
  void start();
  void check_plan() const;
  void check_arguments(std::span<const Tensor> args) const;

  const std::chrono::nanoseconds timeout_;
  const bool verify_;
  MeshPartition plan_;                                  // lists the collectives of the compiled graphs
  LiveReplicas* const replicas_;                        // null: all ranks of the mesh belong to the job
  const std::vector<MeshPartition::RankPlace> places_;  // index: rank of the job
  std::vector<internal::PreparedGraph> planned_;  // index: shape class; with pp: shape class and rank of the pipeline
  std::unique_ptr<Ranks> ranks_;
  bool checked_ = false;  // whether the arguments of the first call were checked
  uint16_t number_ = 0;   // number of the step in the flight recorder; 0: none
};

}  // namespace weft::dist
