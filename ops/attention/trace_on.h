// Tracing of mods for calls on a GPU: indices and score are on the call's device, where the tables are.
#pragma once
#include "ops/attention/mod.h"

namespace weft::internal {

/// trace_mask and trace_score of mod.h, with the graph's values on `device`.
Body trace_mask_on(const MaskMod& mask, Device device);
Body trace_score_on(const ScoreMod& mod, DType dtype, Device device);

}  // namespace weft::internal
