#include "ops/core/dot.h"

#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Dot, dot_ops());
}  // namespace weft::testing
