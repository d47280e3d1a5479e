#include "compiler/passes/retrace.h"

#include "framework/dispatch/capture.h"

namespace weft {

Ref<Graph> retrace(const Graph& g, Replacement replacement, bool record) {
  return recapture(g, [&](const Node& n, std::span<const Tensor> in) -> std::optional<std::vector<Tensor>> {
    const internal::OriginScope at(n, n.backward);
    const EnableGrad recorded(record);
    std::vector<Tensor> results = replacement(n, in);
    if (results.empty()) return {};
    return results;
  });
}

}  // namespace weft
