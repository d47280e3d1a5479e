// MeshStep: one captured step laid over a mesh and run by ranks that are threads of this process.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compiler/exec/entry.h"
#include "distributed/launch/world.h"
#include "distributed/plan/report.h"

namespace weft::dist {

/// The shards of a cell: what its value is gathered from.
class ShardedCell final : public RemoteValue {
 public:
  ShardedCell(const Mesh& mesh, const Spec& rest, const TensorType& type);
  Tensor gather(const Cell& cell) override;
  bool lies_as(const Mesh& mesh, const Spec& rest) const { return mesh == mesh_ && rest == rest_; }
  /// Takes a whole value apart.
  void scatter(const Tensor& whole);
  /// By rank.
  std::vector<Ref<Cell>> shards;

 private:
  Mesh mesh_;
  Spec rest_;
  TensorType type_;
};

class MeshStep final : public internal::PartitionedStep {
 public:
  MeshStep(const Ref<Graph>& joint, const CompileOptions& options);
  ~MeshStep() override;
  std::vector<Tensor> run(std::span<const Tensor> args) override;
  std::string report() const override { return plan("cpu").to_string(); }
  PlanReport plan(const std::string& machine) const override;
  World& world() override;
  const Graph* graph(const std::string& stage) const override;
  void fill(CompileStats& stats) const override;

 private:
  struct Ranks;
  void bring_cells();
  void start();

  MeshPlan plan_;                           // collectives as the compiled graphs have them
  std::vector<internal::Planned> planned_;  // by class
  std::unique_ptr<Ranks> ranks_;
};

}  // namespace weft::dist
