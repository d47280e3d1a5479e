#include "ops/core/pointwise.h"

#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Pointwise, pointwise_ops());
}  // namespace weft::testing
