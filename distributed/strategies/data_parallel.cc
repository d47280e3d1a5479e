// Data parallelism (dp, fsdp): each rank gets a part of the batch, dim 0 of the arguments. Outside of experts, ep is
// one more data dimension. sharded_state.cc decides which part of the state each rank keeps.
#include "distributed/strategies/strategy.h"

namespace weft::dist {
namespace {

Axes batch_axes(const Mesh& mesh) {
  Axes batch;
  for (const Mesh::Dim& d : mesh.dims())
    if (d.over.empty() && (d.name == "dp" || d.name == "fsdp" || d.name == "ep"))
      for (int8_t a : d.axes) batch.push_back(a);
  return batch;
}

void check(const Mesh& mesh, const Plan&, std::span<const TensorType> arguments) {
  const Axes batch = batch_axes(mesh);
  const int64_t n = mesh.parts(batch);
  for (const TensorType& type : arguments)
    WEFT_CHECK(type.shape.empty() || type.shape[0] % n == 0, "mesh ", mesh.to_string(), ": a batch of ", type.shape[0],
               " (argument ", type, ") does not divide over ", mesh.name(batch), " (", n, " ranks); ",
               nearest_multiples("batches", type.shape[0], n));
}

void annotate(StrategyContext& s) {
  const Axes batch = batch_axes(s.mesh);
  if (s.mesh.parts(batch) == 1) return;
  for (size_t i = 0; i < s.graph.inputs.size(); ++i)
    if (const Shape& shape = s.graph.type(s.graph.inputs[i]).shape; !shape.empty())
      s.pins.inputs[i].dims[0] = one_segment(shape[0], batch);
}

std::string avoid(const Mesh&, const PlannedCollective& c) {
  if (c.subject != Subject::kGradient) return {};
  return str_cat("gradients are summed over every dimension that splits the batch: a mesh without ", c.axes,
                 " has none of it");
}

std::vector<int> sizes(const MeshSearch& s) { return {s.world / s.inner}; }  // all that are left

constexpr std::string_view kDimensions[] = {"dp", "fsdp"};

}  // namespace

const Strategy data_parallel = {.name = "data_parallel",
                                .dimensions = kDimensions,
                                .annotate = annotate,
                                .check = check,
                                .avoid = avoid,
                                .sizes = sizes,
                                .level = 3};

}  // namespace weft::dist
