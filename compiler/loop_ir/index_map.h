// Index maps: the elements of a value that an iteration domain visits, as affine functions of the domain's axes.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/small_vec.h"
#include "framework/ir/graph.h"

namespace weft::loop_ir {

struct Term {
  int axis = 0;
  int64_t coeff = 0;
  friend bool operator==(const Term&, const Term&) = default;
};

/// offset + the sum of coeff * position along axis, with terms in ascending order of axis. Or the value of an
/// expression (a gather).
struct DimIndex {
  SmallVec<Term, 2> terms;
  int64_t offset = 0;
  int32_t dynamic = -1;
  friend bool operator==(const DimIndex& a, const DimIndex& b) {
    return a.offset == b.offset && a.dynamic == b.dynamic &&
           std::equal(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end());
  }
};

/// One DimIndex per dim of a value.
using IndexMap = std::vector<DimIndex>;

/// An axis that must be split in two to make an index affine: the minor axis has `minor` positions.
struct SplitAxis {
  int axis = 0;
  int64_t minor = 1;
};

/// The map of a value of shape `to` that has the same elements, in row-major order, as a value of shape `from` at
/// `map`. Empty if that map is not affine. Then *split is the axis to split first, or has axis -1 if no split helps.
std::optional<IndexMap> reshape_map(const IndexMap& map, const Shape& from, const Shape& to,
                                    const std::vector<int64_t>& extents, SplitAxis* split);

/// For view nodes (reshape, permute, broadcast, slice, window, stop_gradient): the operand's map, from the result's.
std::optional<IndexMap> operand_map(const Node& n, const TensorType& operand, const IndexMap& result,
                                    const std::vector<int64_t>& extents, SplitAxis* split);
/// The result's map, from the operand's map. Empty if it does not follow (broadcast to new positions, part of a slice).
std::optional<IndexMap> result_map(const Node& n, const TensorType& operand, const IndexMap& map,
                                   const std::vector<int64_t>& extents, SplitAxis* split);
/// Whether these functions support the view op of this node.
bool is_index_map(const Node& n);

}  // namespace weft::loop_ir
