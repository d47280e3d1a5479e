#include "compiler/passes/pass_options.h"

#include "compiler/passes/pipeline.h"

namespace weft::internal {

PassOptions pass_options(const CompileOptions& options, std::vector<PassReport>* report) {
  return {.disable = options.disable,
          .known = all_passes(),
          .report = report,
          .facts = {.eager_bits = options.numerics == "eager", .exact_sums = options.verify_numerics}};
}

}  // namespace weft::internal
