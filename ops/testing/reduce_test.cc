#include "ops/core/reductions/reduce.h"

#include "ops/core/reductions/softmax.h"
#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(Reduce, reduce_ops());
WEFT_TEST_OPS(Softmax, softmax_ops());
}  // namespace weft::testing
