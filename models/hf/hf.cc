#include "models/hf/hf.h"

#include <algorithm>

#include "framework/base/error.h"
#include "models/hf/families.h"
#include "models/weights/load.h"

namespace weft {

train::LoadedModel load_hf(const std::string& path, const HfOptions& o) {
  WEFT_CHECK(o.dtype == kFloat32 || o.dtype == kBFloat16 || o.dtype == kFloat16, "load_hf: dtype is ", o.dtype,
             "; need f32, bf16 or f16");
  const weights::HfModel hf = weights::open_hf(path, o.context);
  return train::load_hf(hf, family_named(hf.config.family->program, "load_hf: the family"), o.dtype, o.device, o.text,
                        o.pre, o.copy_weights);
}

}  // namespace weft
