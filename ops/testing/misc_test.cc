#include "ops/core/misc.h"

#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Misc, misc_ops());
}  // namespace weft::testing
