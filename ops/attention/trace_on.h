// Tracing mods for calls on a GPU: indices and score lie on the call's device, so that they meet the tables there.
#pragma once
#include "ops/attention/mod.h"

namespace weft::internal {

/// trace_mask and trace_score of mod.h, with the graph's values on `device`.
Body trace_mask_on(const MaskMod& mask, Device device);
Body trace_score_on(const ScoreMod& mod, DType dtype, Device device);

}  // namespace weft::internal
