#include "distributed/launch/compile.h"

#include "distributed/launch/step.h"

namespace weft::dist {
namespace {

class MeshPartitioner final : public internal::Partitioner {
 public:
  explicit MeshPartitioner(LayOut how) : how_(std::move(how)) {}
  std::unique_ptr<internal::PartitionedStep> partition(const Ref<Graph>& joint, const weft::CompileOptions& options) override {
    return std::make_unique<MeshStep>(joint, how_, options);
  }

 private:
  LayOut how_;
};

}  // namespace

weft::CompileOptions CompileOptions::for_one_rank() const {
  weft::CompileOptions o{.memory_budget = memory_budget,
                         .numerics = numerics,
                         .verify_numerics = verify_numerics,
                         .disable = disable,
                         .kernel_cache = kernel_cache};
  if (mesh.find("tp")) o.disable.push_back("linear_cross_entropy");  // the table of the loss is split over tp
  if (mesh.size() > 1) o.partitioner = std::make_shared<MeshPartitioner>(LayOut{mesh, plan, communication});
  return o;
}

}  // namespace weft::dist
