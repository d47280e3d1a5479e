// A mod's graph run on many scores at once: its 0-d values become tensors over the scores' dims.
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::internal {

/// One place where a mod reads a table: flat row-major positions (i64), and what stands there.
struct TableRead {
  int input = 0;     // of the mod's graph
  Tensor at, value;  // of one shape (but see TableReads), which broadcasts to the scores'
};

struct TableReads {
  Shape spread;  // not empty: values are spread over this shape before they record, so that no gradient is summed
  std::vector<TableRead> all;
};

/// An index into a table, before it is kept inside: by score, of one shape that broadcasts to the scores'.
struct IndexRead {
  int input = 0;  // of the mod's graph
  Tensor at;      // i64
  int64_t extent = 0;
  SourceLine line;  // the user's
};

/// Extents of the inputs (0-d, i64) that stand in place of those of `in`, so that what is captured is right for tables
/// of any length; of an input that has none, or of a table that the mod reshapes, its own.
using TableExtents = std::vector<std::vector<Tensor>>;

/// The mod's result for in[0], ..., in[mapped - 1], tensors of one rank that broadcast against each other, in place of
/// the graph's first inputs; the others are tables. An index outside its table gives NaN (floating point), or is taken
/// as 0; `indices`, if given, gets all of them. With `reads`, floating-point tables are read through f32 (f64) tensors
/// that record: grad() may be asked for reads->all[i].value.
Tensor map_mod(const Graph& mod, int mapped, std::span<const Tensor> in, TableReads* reads = nullptr,
               std::vector<IndexRead>* indices = nullptr, const TableExtents* extents = nullptr);

/// Whether tables of this dtype have gradients.
inline bool has_gradient(DType t) { return is_floating(t) && itemsize(t) > 1; }
/// The same value, of which grad() may be asked; derivatives of that gradient still reach what t came from.
Tensor own_tape(const Tensor& t);

}  // namespace weft::internal
