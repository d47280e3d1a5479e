// Attention on a part of its batch entries, heads, queries and keys, as the whole sees it: mods count in positions of
// the whole, dropout draws the whole's bits, and blocks that are empty in the whole are skipped in the part. Where the
// part lies is data (0-d and 1-d i64 tensors), so that one graph and one plan serve all parts.
#pragma once
#include <span>
#include <vector>

#include "ops/attention/record.h"

namespace weft {

/// Where the local indices of one dim stand in the whole: i is at i + offset or, with a table, at table[i + offset].
struct IndexMap {
  Tensor offset;         // 0-d i64; undefined: 0
  Tensor table;          // i64 [n]; undefined: neighbours stay neighbours
  int64_t extent = 0;    // of the whole; 0: the local one
  int64_t multiple = 1;  // known to divide the offset; lists of blocks are sliced where it is a multiple of the block
  /// Whether every index stands where it says.
  bool identity() const { return !offset.defined() && !table.defined(); }
};

/// The dims of one shard of an attention node; h counts query heads.
struct ShardMaps {
  IndexMap b, h, q, kv;
};

struct ShardOptions {
  bool wide = false;  // results are f32 whatever the operands are: partial sums that are added up elsewhere
};

/// attention's results (out, lse, max) for a shard. `attrs`: of the whole's node; `local`: its operands in its order,
/// with q, k, v (and a page table) local, tables, block lists, seed and step the whole's. kv heads are those that the
/// local query heads read, the local number of query heads a multiple of them. Where keys are a part, results are those
/// over these keys (see merge.h). f64 gives primitives. Throws naming the dim where maps and operands do not fit.
std::vector<Tensor> attention_on_shard(const Attrs& attrs, std::span<const Tensor> local, const ShardMaps& maps,
                                       const ShardOptions& options = {});
/// attention_backward's results (dq, dk, dv, then the tables' gradients) for a shard; `local` ends with out, lse, dout
/// and dlse of the local queries over all keys. Each is a sum over the shard alone: dq over its keys, dk and dv over
/// its batch entries, query heads and queries, tables over everything.
std::vector<Tensor> attention_backward_on_shard(const Attrs& attrs, std::span<const Tensor> local,
                                                const ShardMaps& maps, const ShardOptions& options = {});

/// i64 [n]: where local indices 0 to n - 1 stand in the whole.
Tensor positions_of(const IndexMap& map, int64_t n, Device device = {});

namespace internal {

/// The node for a shard: attributes and operands (without attention_backward's last four).
struct LocalAttention {
  Attrs attrs;
  std::vector<Tensor> operands;
};
LocalAttention relocated(const Attrs& attrs, std::span<const Tensor> local, const ShardMaps& maps);

}  // namespace internal
}  // namespace weft
