#include "ops/core/indexing/index.h"

#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Index, index_ops());
}  // namespace weft::testing
