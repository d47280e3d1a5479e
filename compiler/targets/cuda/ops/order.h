// Sorts lines of keys, equal keys by their place: tiles in shared memory, then merges of neighbours. Used for sort and
// topk, and for the order of sums over equal indices.
#pragma once
#include "compiler/targets/cuda/ops/launches.h"

namespace weft::cuda {

/// The source of the entries to sort.
struct EntrySource {
  std::string name;   // part of the kernel's symbol, together with the types and constants of `text`
  std::string text;   // static inline E entry_at(const P& p, int64 line, int64 i)
  bool wide = false;  // E is Wide (64-bit keys); otherwise uint64_t: the key above, the index in the low half
  void (*declare)(Text& text, const void* of) = nullptr;  // declares the fields of P that `text` reads, and its types
  const void* of = nullptr;
};

/// struct Wide.
extern const std::string_view kEntryTypes;
/// less(a, b), index_of(e).
extern const std::string_view kEntryFunctions;
/// sort_tile<kTile>(tile): a block sorts kTile (a power of two) entries in shared memory. It starts and ends with a
/// barrier. Needs kEntryFunctions.
extern const std::string_view kSortTileFunctions;

/// Adds launches that sort `lines` lines of n distinct entries. Returns the place in scratch of the first `keep`
/// entries of each line, in order, line after line.
int64_t add_sort(Launches& to, const EntrySource& source, int64_t lines, int64_t n, int64_t keep);

/// The indices of operand `place`, to be sorted by target along `dim`; targets are below `limit`.
struct Targets {
  const StridedView& index;
  int place, dim;
  int64_t limit;
};
/// Adds launches that sort them. Returns the place in scratch of the entries of the lines (uint64_t: the target in the
/// high half, the place in the line in the low half). An index out of range sets the flag and counts as 0.
int64_t add_target_sort(Launches& to, const Targets& targets);

}  // namespace weft::cuda
