#include "ops/core/misc.h"

#include "ops/core/round_to.h"
#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Misc, misc_ops());
WEFT_TEST_OPS(Rounding, rounding_ops());
}  // namespace weft::testing
