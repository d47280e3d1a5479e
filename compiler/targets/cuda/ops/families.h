// The makers behind make_op, by family, and the copies that several of them begin with.
#pragma once
#include <memory>

#include "compiler/targets/cuda/ops/launches.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// A node whose operation is wanted.
struct Request {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const StridedView> in, out;
  int alignment = 16;  // of addresses
};

/// Adds the launches of a node; false where these types have none.
using Maker = bool (*)(const Request&, Launches&);

/// The maker of an op in its family's table, or null.
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
/// Elementwise ops have one maker for all.
bool make_pointwise(const Request& r, Launches& to);

/// Adds y = x, converted: both views have y's shape (strides of 0 where broadcast). Nothing if there are no elements.
void add_copy(Launches& to, const StridedView& x, const Place& from, const StridedView& y, const Place& at,
              int alignment);
/// Adds "result 0 = operand 0", left out in a run where both are at one address.
void add_copy_unless_same(const Request& r, Launches& to);
/// Adds y = value, converted as casts from f64 (`whole`: from i64) are.
void add_fill(Launches& to, const StridedView& y, const Place& at, double value);
void add_fill(Launches& to, const StridedView& y, const Place& at, int64_t value);
/// Adds a launch that tells of the first of the indices, operand `place`, that it is out of range: there is nothing
/// that they could point at.
void add_bad(Launches& to, const StridedView& index, int place);

/// The widest access, in bytes up to 16, with which a contiguous innermost dim can be moved in all these views.
int vector_bytes(int64_t element, const Shape& shape, std::initializer_list<Shape> strides,
                 std::initializer_list<int64_t> offsets, int alignment);
/// The type of that many bytes, as kernels' texts name it.
std::string_view bytes_type(int bytes);

}  // namespace weft::cuda
