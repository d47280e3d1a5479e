#include "ops/core/indexing/view.h"

#include "ops/core/products/window.h"
#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(View, view_ops());
WEFT_TEST_OPS(Window, window_ops());
}  // namespace weft::testing
