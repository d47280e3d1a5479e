#include "ops/core/creation.h"

#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Creation, creation_ops());
}  // namespace weft::testing
