// How two graphs are compared. The public functions are structurally_equal() and Attrs::operator==.
#pragma once
#include "framework/ir/graph.h"

namespace weft::internal {

/// How captured tensors are compared. Small ones (kInlineElements) are always compared by content.
enum class CapturedBy {
  kType,      // compares large ones by type: a parsed graph equals the printed one
  kIdentity,  // compares large ones by memory: nodes with nested graphs may be merged
};

/// Captured tensors of up to this many elements are printed in full and compared by content.
inline constexpr int64_t kInlineElements = 16;

bool graphs_equal(const Graph& a, const Graph& b, CapturedBy by);

/// True if the elements can be read now (a concrete tensor on the CPU) and are few enough to print.
bool is_inline(const Tensor& t);

}  // namespace weft::internal
