#include "tools/libraries.h"

#include <dnnl.hpp>

#include "tools/gpus.h"

namespace weft::tools {

void add_libraries(Facts& facts) {
  const dnnl_version_t* dnnl = dnnl_version();
  facts.add("libraries", "onednn",
            std::to_string(dnnl->major) + "." + std::to_string(dnnl->minor) + "." + std::to_string(dnnl->patch));
  add_gpus(facts);
}

}  // namespace weft::tools
