// score_mods as generated kernels of the CPU.
#pragma once

namespace weft::internal {

/// Makes attention on the CPU run score_mods as generated kernels; without it they are interpreted. weft.cc calls it.
void install_generated_mods();

}  // namespace weft::internal
