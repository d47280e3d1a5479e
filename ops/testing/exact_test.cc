#include "ops/core/products/exact.h"

#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Exact, exact_ops());
}  // namespace weft::testing
