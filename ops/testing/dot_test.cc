#include "ops/core/products/dot.h"

#include "ops/core/products/conv.h"
#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Dot, dot_ops());
WEFT_TEST_OPS(Conv, conv_ops());
}  // namespace weft::testing
