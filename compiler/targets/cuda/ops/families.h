// The makers behind make_op, by family, and the copies with which several of them start.
#pragma once
#include <memory>

#include "compiler/targets/cuda/ops/launches.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// A node for which an operation is requested.
struct OperationRequest {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const StridedView> in, out;
  int alignment = 16;  // alignment of addresses
};

/// Adds the launches of a node. False if there are none for these types.
using Maker = bool (*)(const OperationRequest&, Launches&);

/// A row of a family's table: an op and its maker.
struct MakerRow {
  const OpDef* op;
  Maker make;
};
std::span<const MakerRow> elementwise_makers();
std::span<const MakerRow> view_makers();
std::span<const MakerRow> random_makers();
std::span<const MakerRow> reduce_makers();
std::span<const MakerRow> scan_makers();
std::span<const MakerRow> order_makers();
std::span<const MakerRow> index_makers();
std::span<const MakerRow> at_target_makers();
std::span<const MakerRow> moe_makers();
std::span<const MakerRow> exact_makers();
std::span<const MakerRow> rounding_makers();
/// One maker for all elementwise ops.
bool make_pointwise(const OperationRequest& r, Launches& to);

/// Adds y = x with conversion. Both views have y's shape (stride 0 for broadcast dims). Adds nothing for empty views.
void add_copy(Launches& to, const StridedView& x, const MemoryAddress& from, const StridedView& y,
              const MemoryAddress& at, int alignment);
/// Adds "result 0 = operand 0", which a run skips if both have one address.
void add_copy_unless_same(const OperationRequest& r, Launches& to);
/// Adds y = value, converted like a cast from f64 (from i64 for an int64_t).
void add_fill(Launches& to, const StridedView& y, const MemoryAddress& at, double value);
void add_fill(Launches& to, const StridedView& y, const MemoryAddress& at, int64_t value);
/// Adds a launch that reports the first index of operand `place` as out of range: the dim that the indices address is
/// empty.
void add_bad(Launches& to, const StridedView& index, int place);

/// The widest access, up to 16 bytes, that can move a contiguous innermost dim in all these views.
int vector_bytes(int64_t element, const Shape& shape, std::initializer_list<Shape> strides,
                 std::initializer_list<int64_t> offsets, int alignment);
/// The type of that size in kernel text.
std::string_view bytes_type(int bytes);

}  // namespace weft::cuda
