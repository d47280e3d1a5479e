// MeshStep: one captured step, partitioned over a mesh. Its ranks are threads of this process, or of the processes of a
// job (processes.h); each process has the shards of its own ranks. All ranks commit, or none does. A failed step tears
// only the cells that a rank has overwritten.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/exec/entry.h"
#include "distributed/launch/world.h"
#include "distributed/plan/report.h"
#include "framework/dispatch/parameter.h"
#include "framework/dispatch/state/stored_value.h"

namespace weft::dist {

/// The shards of a cell. A read of the cell gathers them: between processes, it is a collective.
class ShardedCell final : public RemoteValue {
 public:
  /// Which ranks have a shard, and which one.
  struct ShardLayout {
    Mesh mesh;               // without pp
    std::vector<int> place;  // by rank: the rank of `mesh` whose shard it has; -1: none
    Spec rest;
    friend bool operator==(const ShardLayout&, const ShardLayout&) = default;
  };
  ShardedCell(ShardLayout layout, const TensorType& type);
  Tensor gather(const Cell& cell) override;
  bool has_layout(const ShardLayout& layout) const { return layout == layout_; }
  /// Splits a whole value into the shards.
  void scatter(const Tensor& whole);
  /// Makes each shard alone by an initialiser (Cell::init).
  void initialise(const Graph& init);
  /// Reads each shard alone.
  void read(StoredValue& stored, const Cell& cell);
  /// Whether `value` is the last result of gather(), and so not newer than the shards. This object also holds this
  /// value, so a step on one device replaces it and does not write it in place.
  bool gathered(const Tensor& value) const;
  /// Call before the shards are written: the gathered value is then out of date.
  void forget() { gathered_ = {}; }
  /// Cells by rank; ranks of other processes have cells without values.
  std::vector<Ref<Cell>> shards;
  /// How often whole values were scattered and gathered, and their bytes.
  struct MovedValues {
    int64_t scatters = 0, gathers = 0, bytes = 0;
  } moved;

 private:
  void make_shards(const std::function<void(int place, const Tensor& shard)>& make);

  ShardLayout layout_;
  TensorType type_;
  Tensor gathered_;
};

/// The whole values of cells on the first process of a job, while this object exists. The other processes send their
/// shards and keep nothing. Its constructor is a collective if cells are sharded over the job; without a job it does
/// nothing.
class GatheredCells {
 public:
  explicit GatheredCells(std::vector<std::pair<std::string, CellHandle>> cells);
  ~GatheredCells();
  GatheredCells(const GatheredCells&) = delete;

 private:
  std::vector<Ref<Cell>> gathered_;
};

class MeshStep final : public internal::PartitionedStep {
 public:
  MeshStep(const Ref<Graph>& joint, const CompileOptions& options);
  ~MeshStep() override;
  std::vector<Tensor> run(std::span<const Tensor> args) override;
  std::string report() const override { return plan("cpu").to_string(); }
  StepRecord record(int rank) const override;
  PlanReport plan(const std::string& machine) const override;
  World& world() override;
  const Graph* graph(const std::string& stage) const override;
  void fill(CompileStats& stats) const override;

 private:
  struct Ranks;
  int ranks() const { return plan_.world.size(); }
  size_t program(size_t rank) const { return static_cast<size_t>(plan_.program_of(places_[rank])); }
  bool writes(size_t cell) const;
  ShardedCell::ShardLayout layout_of(size_t cell) const;
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
  MeshPartition plan_;  // lists the collectives of the compiled graphs
  const std::vector<MeshPartition::RankPlace> places_;
  std::vector<internal::PreparedGraph> planned_;  // by shape class; with pp: by shape class and rank of the pipeline
  std::unique_ptr<Ranks> ranks_;
  bool checked_ = false;  // whether the arguments of the first call were checked
  uint16_t number_ = 0;   // number of the step in the flight recorder; 0: none
};

}  // namespace weft::dist
