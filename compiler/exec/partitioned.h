// The seam for steps that run otherwise than as one plan on this device: distributed/launch partitions them over ranks.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/ir/graph.h"

namespace weft {
struct CompileOptions;
struct CompileStats;
}  // namespace weft

namespace weft::internal {

/// A step made ready to run.
class PartitionedStep {
 public:
  virtual ~PartitionedStep() = default;
  /// The results for these arguments; cells are committed.
  virtual std::vector<Tensor> run(std::span<const Tensor> args) = 0;
  virtual std::string report() const = 0;
  /// Stages "partitioned" (of rank 0), "fused" and "scheduled"; null for others.
  virtual const Graph* graph(const std::string& stage) const = 0;
  /// Figures of one rank.
  virtual void fill(CompileStats& stats) const = 0;
};

class Partitioner {
 public:
  virtual ~Partitioner() = default;
  /// Plans the joint graph of one capture; nothing is allocated yet. Throws on what cannot be laid out.
  virtual std::unique_ptr<PartitionedStep> partition(const Ref<Graph>& joint, const CompileOptions& options) = 0;
};

}  // namespace weft::internal
