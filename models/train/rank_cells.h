// The cells of a run on the ranks that hold them: for checks of wrong bits (state_check.h, compute_check.h).
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "distributed/launch/sharded_cell.h"
#include "distributed/launch/world.h"
#include "framework/dispatch/state/cell_access.h"
#include "models/train/checkpoint.h"

namespace weft::train {

struct StateCheckOptions {
  int64_t every = 1;                        // steps between checks
  int64_t first = 1;                        // the first step of the run
  bool continues = false;                   // go on from the right state when the wrong rank is known; false: throw
  std::function<void()> before_throw = {};  // all processes call it before a check throws
};

/// The position in two lists that no list has.
inline constexpr uint64_t kNever = UINT64_MAX;
/// The first position whose words differ; kNever: none up to the end of the shorter list.
uint64_t first_difference(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b);

/// Gives each process the words of all. Words of other processes are 0. A collective.
void gather_words(std::vector<uint64_t>& words);

/// The shards of a cell on the ranks of a world. Null: there are none, or they are of another mesh of this program, and
/// no step of the run has used the cell.
dist::ShardedCell* shards_of(const Cell& cell, const dist::World& world);

/// Calls f(rank, value) for the values of a cell in this process: its shards on a world, else the whole value.
template <class F>
void each_value(const Cell& cell, const dist::World* world, F&& f) {
  const internal::CellReader read(cell, "check_state");
  if (!world && cell.value.defined()) f(size_t{0}, cell.value);
  const dist::ShardedCell* const sharded = world ? shards_of(cell, *world) : nullptr;
  if (!sharded) return;
  for (size_t r = 0; r < sharded->shards.size(); ++r)
    if (const Tensor& shard = sharded->shards[r]->value; shard.defined()) f(r, shard);
}

std::span<const std::byte> bytes_of(const Tensor& t);

/// The hashes of the cells' values, by cell and rank; 0 where the rank has no shard. A collective.
std::vector<uint64_t> cell_hashes(const NamedCells& cells, const dist::World* world);

/// "rank 1 on host n7 or rank 2 on host n8". A collective.
std::string ranks_text(const std::vector<int>& ranks);

/// Ends a run that has found wrong bits: throws DataLoss on all processes. `flag`: the name of the check.
[[noreturn]] void fail_check(const char* flag, const std::string& found, const StateCheckOptions& options);

}  // namespace weft::train
