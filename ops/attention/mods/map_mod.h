// Runs a mod's graph on many scores at once: its 0-d values become tensors over the scores' dims.
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::internal {

/// One read of a table by a mod: flat row-major positions (i64) and the values there.
struct TableRead {
  int input = 0;     // input of the mod's graph
  Tensor at, value;  // tensors of one shape (but see TableReads), which broadcasts to the scores' shape
};

struct TableReads {
  Shape spread;  // if not empty, values are broadcast to this shape before they record, so that no gradient is summed
  int64_t fixed = 0;  // bit i: reads of table i do not record
  std::vector<TableRead> all;
};

/// An index into a table, before clamping: per score, with a shape that broadcasts to the scores' shape.
struct IndexRead {
  int input = 0;  // input of the mod's graph
  Tensor at;      // i64
  int64_t extent = 0;
  SourceLine line;  // the user's line
};

/// Extents of the inputs (0-d, i64) that replace the extents of `in`, so that a captured mod is correct for tables of
/// any length. An input without an entry, or a table that the mod reshapes, uses its own extents.
using TableExtents = std::vector<std::vector<Tensor>>;

/// The mod's result for in[0], ..., in[mapped - 1], tensors of one rank that broadcast against each other and replace
/// the graph's first inputs; the other inputs are tables. An index outside its table gives NaN (floating point), or is
/// replaced by 0; `indices`, if given, receives all of them. If `reads` is given, floating-point tables are read
/// through f32 (f64) tensors that record, so that grad() can differentiate by reads->all[i].value; tables in
/// reads->fixed do not record.
Tensor map_mod(const Graph& mod, int mapped, std::span<const Tensor> in, TableReads* reads = nullptr,
               std::vector<IndexRead>* indices = nullptr, const TableExtents* extents = nullptr);

/// True if tables of this dtype have gradients.
inline bool has_gradient(DType t) { return is_floating(t) && itemsize(t) > 1; }
/// Sets of tables are bits. They hold tables 0 to 62.
inline bool in_tables(int64_t set, int table) { return table < 63 && (set >> table & 1) != 0; }
/// The set with this table; the same set for tables that no set holds.
inline int64_t with_table(int64_t set, int table) { return table < 63 ? set | int64_t{1} << table : set; }
/// The same value as a new leaf for grad(); derivatives of that gradient still reach t's operands.
Tensor own_tape(const Tensor& t);
/// Gradients of `out`, given its own; zeros if a mod computes it from integers and constants only.
std::vector<Tensor> own_gradients(const Tensor& out, const std::vector<Tensor>& wrt, const Tensor& grad_output);

}  // namespace weft::internal
