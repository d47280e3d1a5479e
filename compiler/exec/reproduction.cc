#include "compiler/exec/reproduction.h"

namespace weft::internal {

std::string write_reproduction(const FusedKernel&, const Graph&, std::span<const Tensor>,
                               std::span<const BoundedValue>) {
  return "no reproduction";
}

}  // namespace weft::internal
