// What the umbrella wires up for every program: GPUs behind Device::cuda(i), looked for at first use.
#include "compiler/targets/cuda/run/eager.h"

namespace weft {
namespace {

[[maybe_unused]] const bool wired = (cuda::install_eager(), true);

}  // namespace
}  // namespace weft
