// For tests of the planner.
#pragma once
#include "tools/plan/candidate.h"

namespace weft::planner {

/// A step of a preset on H100 GPUs.
inline Workload on_h100(const char* model, int gpus, int64_t batch, int64_t sequence = 8192) {
  return {.model = preset_shape(model),
          .machine = machine_preset("h100-sxm"),
          .gpus = gpus,
          .batch = batch,
          .sequence = sequence};
}

}  // namespace weft::planner
