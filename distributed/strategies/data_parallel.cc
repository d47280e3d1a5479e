// Data parallelism (dp, fsdp): each rank gets a part of the batch, dim 0 of the arguments. Outside of experts, ep is
// one more data dimension. sharded_state.cc decides which part of the state each rank keeps.
#include "distributed/strategies/strategy.h"

namespace weft::dist {
namespace {

void annotate(StrategyContext& s) {
  Axes batch;
  for (const Mesh::Dim& d : s.mesh.dims())
    if (d.over.empty() && (d.name == "dp" || d.name == "fsdp" || d.name == "ep"))
      for (int8_t a : d.axes) batch.push_back(a);
  const int64_t n = s.mesh.parts(batch);
  if (n == 1) return;
  for (size_t i = 0; i < s.graph.inputs.size(); ++i) {
    const TensorType& type = s.graph.type(s.graph.inputs[i]);
    if (type.shape.empty()) continue;
    WEFT_CHECK(type.shape[0] % n == 0, "mesh ", s.mesh.to_string(), ": a batch of ", type.shape[0], " (argument ", type,
               ") does not divide over ", s.mesh.name(batch), " (", n, " ranks); ",
               nearest_multiples("batches", type.shape[0], n));
    s.pins.inputs[i].dims[0] = one_segment(type.shape[0], batch);
  }
}

constexpr std::string_view kDimensions[] = {"dp", "fsdp"};

}  // namespace

const Strategy data_parallel = {"data_parallel", kDimensions, {}, annotate};

}  // namespace weft::dist
