#include "ops/core/collectives/collective.h"

#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Collective, collective_ops());
}  // namespace weft::testing
