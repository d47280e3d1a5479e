// PartitionedStep: the interface of a step that runs on a mesh. distributed/launch implements it.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/ir/graph.h"

namespace weft {
struct CompileStats;
struct StepRecord;
namespace dist {
class PlanReport;
class World;
}  // namespace dist
}  // namespace weft

namespace weft::internal {

/// A step that is ready to run on the ranks of a mesh.
class PartitionedStep {
 public:
  virtual ~PartitionedStep() = default;
  /// Runs the step, commits the cells and returns the results.
  virtual std::vector<Tensor> run(std::span<const Tensor> args) = 0;
  virtual std::string report() const = 0;
  virtual StepRecord record(int rank) const = 0;
  virtual dist::PlanReport plan(const std::string& machine) const = 0;
  virtual dist::World& world() = 0;
  /// Stages "partitioned" (of rank 0), "fused" and "scheduled"; null for others.
  virtual const Graph* graph(const std::string& stage) const = 0;
  /// Fills in the figures of one rank.
  virtual void fill(CompileStats& stats) const = 0;
};

}  // namespace weft::internal
