// Spec: the placement of one tensor on a mesh. A dim is a list of segments, major first, each split over axes of the
// mesh. Segments describe exactly a dim that was flattened from (batch, time) with both split, or from unevenly split
// heads.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "framework/dispatch/rank/communicator.h"
#include "framework/mesh/mesh.h"
#include "framework/tensor/part.h"
#include "framework/tensor/tensor.h"

namespace weft::dist {

/// Which indices of a segment a rank owns.
enum class SegLayout : uint8_t {
  kBlock,     // rank i of n has [floor(i N / n), floor((i + 1) N / n)), so a part of a part is a part
  kHeadTail,  // blocks i and 2n - 1 - i of 2n such blocks: equal work under a causal mask
  kTable,     // equal numbers on each rank; a table that the step makes at run time lists them
  // The layouts below are only for rows sorted by expert (ops/core/indexing/moe.h).
  kByToken,   // a rank has the rows of its own tokens, sorted among themselves
  kByExpert,  // a rank has the rows of its own experts, known at run time, in a buffer of `room` rows
};

struct Seg {
  int64_t extent = 1;
  Axes axes = {};  // major first
  SegLayout layout = SegLayout::kBlock;
  int64_t room = 0;   // kByExpert
  Axes experts = {};  // kByExpert: the axes among `axes` that split the experts
  friend bool operator==(const Seg&, const Seg&) = default;
  bool is_rows() const { return layout == SegLayout::kByToken || layout == SegLayout::kByExpert; }
  /// The number of pieces for n ranks. If the pieces are equal, the ranks' parts are equal.
  int64_t pieces(int64_t n) const { return layout == SegLayout::kHeadTail ? 2 * n : n; }
};

/// The product of the extents is the extent of the dim. Always canonical: see canonical().
using DimSpec = SmallVec<Seg, 1>;

/// A reduction that is not done yet: the ranks along this axis hold its terms.
struct Pending {
  int8_t axis = 0;
  ReduceOp op = ReduceOp::kSum;
  friend bool operator==(const Pending&, const Pending&) = default;
};

struct Spec {
  SmallVec<DimSpec, 4> dims;
  SmallVec<Pending, 2> pending = {};  // ordered by axis
  friend bool operator==(const Spec&, const Spec&) = default;

  /// The whole tensor on every rank.
  static Spec replicated(const Shape& shape);
  bool is_replicated() const;
  /// Whether a dim is split over this axis; whether a reduction over it is pending.
  bool splits(int axis) const;
  bool is_pending(int axis) const;
  void add_pending(int axis, ReduceOp op);
  /// The axes that split dims.
  Axes split_axes() const;
};

/// Joins adjacent segments where this does not change the meaning; removes segments of extent 1.
DimSpec canonical(const Mesh& mesh, const DimSpec& dim);
/// A dim that is one segment.
DimSpec one_segment(int64_t extent, const Axes& axes = {}, SegLayout layout = SegLayout::kBlock);
/// Cuts a dim into factors of these sizes, major first; nothing if a split crosses factors.
std::optional<std::vector<DimSpec>> cut(const Mesh& mesh, const DimSpec& dim, const std::vector<int64_t>& sizes);
/// The dim made of these parts, major first.
DimSpec join(const Mesh& mesh, const std::vector<DimSpec>& parts);
Axes axes_of(const DimSpec& dim);
bool whole(const DimSpec& dim);
/// Whether a dim consists of rows sorted by expert on more than one rank.
bool is_rows(const DimSpec& dim);

/// The part of one rank.
int64_t local_extent(const Mesh& mesh, const Seg& seg, int rank);
int64_t local_extent(const Mesh& mesh, const DimSpec& dim, int rank);
Shape local_shape(const Mesh& mesh, const Spec& spec, int rank);
int64_t local_bytes(const Mesh& mesh, const Spec& spec, DType dtype, int rank);
/// The elements that a rank has: each_run() of part.h gives their ranges in the whole tensor and in the shard, so it
/// describes the shard's bytes in memory and in files. Terms of pending reductions are values of their own.
TensorPart part_of(const Mesh& mesh, const Spec& spec, int rank);
/// The global index of each local index, in local order.
std::vector<int64_t> global_indices(const Mesh& mesh, const DimSpec& dim, int rank);
/// True if the parts of all ranks have the same size.
bool even(const Mesh& mesh, const Spec& spec);

/// A copy of one rank's part of a whole tensor. Along pending axes, coordinate 0 gets the value, and the others get
/// zeros.
Tensor shard(const Mesh& mesh, const Spec& spec, const Tensor& whole, int rank);
/// The whole tensor from the parts of all ranks, by rank. Reductions are computed in f64. If parts are copies, the copy
/// of the lowest rank counts.
Tensor unshard(const Mesh& mesh, const Spec& spec, const TensorType& type, const std::vector<Tensor>& parts);

/// "[256@dp, 64] + sum@tp": extents with the mesh dimensions that split them; segments of one dim: "(8@dp 64@tp)".
std::string to_string(const Mesh& mesh, const Spec& spec);

}  // namespace weft::dist
