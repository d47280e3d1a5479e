// Spec: how one tensor lies on a mesh. A dim is a list of segments, major first, each split over axes of the mesh, so
// that a dim flattened from (batch, time) with both split, or from heads split unevenly, is described exactly.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "framework/dispatch/communicator.h"
#include "framework/mesh/mesh.h"
#include "framework/tensor/tensor.h"

namespace weft::dist {

/// Which indices of a segment a rank owns.
enum class Layout : uint8_t {
  kBlock,      // rank i of n: [floor(i N / n), floor((i + 1) N / n)): parts of parts are parts
  kHeadTail,   // chunks i and 2n - 1 - i of 2n such blocks: equal work under a causal mask
  kDocuments,  // as many as the others, which ones a table says that is made when the step runs (sequence_layout.h)
  // Rows sorted by expert (ops/core/moe.h), which lie nowhere else in this way:
  kByToken,   // a rank has the rows of its own tokens, sorted among themselves
  kByExpert,  // along some of the axes a rank has the rows of its own experts, known when it runs; room for `room` rows
};

struct Seg {
  int64_t extent = 1;
  Axes axes = {};  // major first
  Layout layout = Layout::kBlock;
  int64_t room = 0;   // kByExpert
  Axes experts = {};  // kByExpert: over which experts are split, of the axes
  friend bool operator==(const Seg&, const Seg&) = default;
  bool is_rows() const { return layout == Layout::kByToken || layout == Layout::kByExpert; }
  /// Into how many pieces it is cut for n ranks; they have equal parts if these are equal.
  int64_t pieces(int64_t n) const { return layout == Layout::kHeadTail ? 2 * n : n; }
};

/// The product of the extents is the dim's. Kept canonical: see canonical().
using DimSpec = SmallVec<Seg, 2>;

/// Over this axis the ranks hold terms that are still to be reduced.
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
  /// Whether a dim is split over this axis, or its reduction pending.
  bool splits(int axis) const;
  bool is_pending(int axis) const;
  void add_pending(int axis, ReduceOp op);
  /// Axes over which dims are split.
  Axes split_axes() const;
  size_t hash() const;
};

/// Adjacent segments become one where that says the same; segments of extent 1 go.
DimSpec canonical(const Mesh& mesh, const DimSpec& dim);
/// A dim that is one segment.
DimSpec one_segment(int64_t extent, const Axes& axes = {}, Layout layout = Layout::kBlock);
/// The parts of a dim that belong to factors of these sizes (major first), or nothing where a split crosses factors.
std::optional<std::vector<DimSpec>> cut(const Mesh& mesh, const DimSpec& dim, const std::vector<int64_t>& sizes);
/// The dim made of these parts, major first.
DimSpec join(const Mesh& mesh, const std::vector<DimSpec>& parts);
Axes axes_of(const DimSpec& dim);
bool whole(const DimSpec& dim);
/// Whether a dim is of rows sorted by expert, on more than one rank.
bool is_rows(const DimSpec& dim);

/// What a rank holds.
int64_t local_extent(const Mesh& mesh, const Seg& seg, int rank);
int64_t local_extent(const Mesh& mesh, const DimSpec& dim, int rank);
Shape local_shape(const Mesh& mesh, const Spec& spec, int rank);
int64_t local_bytes(const Mesh& mesh, const Spec& spec, DType dtype, int rank);
/// The global index of each local one, in local order.
std::vector<int64_t> global_indices(const Mesh& mesh, const DimSpec& dim, int rank);
/// True if all ranks hold as much as each other.
bool even(const Mesh& mesh, const Spec& spec);

/// A rank's part of a whole tensor, copied; pending axes: coordinate 0 gets the value, the others zeros.
Tensor shard(const Mesh& mesh, const Spec& spec, const Tensor& whole, int rank);
/// The whole tensor of all ranks' parts (by rank), reductions done in f64. Parts that should be copies of each other
/// are taken from the lowest rank.
Tensor unshard(const Mesh& mesh, const Spec& spec, const TensorType& type, const std::vector<Tensor>& parts);

/// "[256@dp, 64] + sum@tp": extents with the dimensions that split them; segments of one dim "(8@dp 64@cp)".
std::string to_string(const Mesh& mesh, const Spec& spec);

}  // namespace weft::dist
