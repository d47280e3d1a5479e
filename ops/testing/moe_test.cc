#include "ops/core/indexing/moe.h"

#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Moe, moe_ops());
}  // namespace weft::testing
