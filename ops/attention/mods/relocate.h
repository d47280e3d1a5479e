// Attention on a part of its batch entries, heads, queries and keys, with the results of the whole: mods use positions
// of the whole, dropout uses the whole's bits, and blocks that are empty in the whole are skipped in the part. The
// position of the part is data (0-d and 1-d i64 tensors), so that one graph and one plan serve all parts.
#pragma once
#include <span>
#include <vector>

#include "ops/attention/record.h"

namespace weft {

/// The positions of the local indices of one dim in the whole: i is at i + offset or, with a table, at table[i +
/// offset].
struct IndexMap {
  Tensor offset;         // 0-d i64; undefined: 0
  Tensor table;          // i64 [n]; undefined: consecutive positions
  int64_t extent = 0;    // extent of the whole; 0: the local extent
  int64_t multiple = 1;  // a known divisor of the offset; lists of blocks are sliced if it is a multiple of the block
  /// True if every local index is also the position in the whole (apart from the extent).
  bool identity() const { return !offset.defined() && !table.defined(); }
};

/// The dims of one shard of an attention node; h counts query heads.
struct ShardMaps {
  IndexMap b, h, q, kv;
};

struct ShardOptions {
  bool wide = false;  // results are f32 whatever the operands are, for partial sums that are added elsewhere
};

/// attention's results (out, log_sum, max) for a shard. `attrs`: of the whole node. `local`: its operands in order; q,
/// k, v (and a page table) are local; tables, block lists, seed and step are the whole's. The kv heads are the heads
/// that the local query heads read; the number of local query heads is a multiple of the number of kv heads. If keys
/// are a part, the results are over these keys (see merge.h). f64 gives primitives. Throws, naming the dim, if maps and
/// operands do not fit.
std::vector<Tensor> attention_on_shard(const Attrs& attrs, std::span<const Tensor> local, const ShardMaps& maps,
                                       const ShardOptions& options = {});
/// attention_backward's results (dq, dk, dv, then the tables' gradients) for a shard. `local` ends with out,
/// log_sum, max, dout and dlse of the local queries over all keys. Each result is a sum over the shard only: dq over
/// its keys; dk and dv over its batch entries, query heads and queries; tables over everything.
std::vector<Tensor> attention_backward_on_shard(const Attrs& attrs, std::span<const Tensor> local,
                                                const ShardMaps& maps, const ShardOptions& options = {});

/// i64 [n]: the positions of local indices 0 to n - 1 in the whole.
Tensor positions_of(const IndexMap& map, int64_t n, Device device = {});

namespace internal {

/// The node for a shard: attributes and operands (without attention_backward's last five).
struct LocalAttention {
  Attrs attrs;
  std::vector<Tensor> operands;
};
LocalAttention relocated(const Attrs& attrs, std::span<const Tensor> local, const ShardMaps& maps);

}  // namespace internal
}  // namespace weft
