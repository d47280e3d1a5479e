// Lines of keys put in order, equal keys by their place: tiles in shared memory, then merges of neighbours. What sort
// and topk do, and what gives sums over equal indices their order.
#pragma once
#include "compiler/targets/cuda/ops/launches.h"

namespace weft::cuda {

/// Where the entries to sort come from.
struct EntrySource {
  std::string name;   // part of the kernel's symbol, with what `text` is specialised by
  std::string text;   // static inline E entry_at(const P& p, int64 line, int64 i)
  bool wide = false;  // E is Wide (64-bit keys), else uint64_t: the key above, the index in the low half
  void (*declare)(Text& text, const void* of) = nullptr;  // what the text reads of P, and its types
  const void* of = nullptr;
};

/// struct Wide.
extern const std::string_view kEntryTypes;
/// less(a, b), index_of(e).
extern const std::string_view kEntryWords;
/// sort_tile<kTile>(tile): a block puts kTile (a power of two) entries in shared memory in order; begins and ends with
/// a barrier. Stands on kEntryWords.
extern const std::string_view kSortTileWords;

/// Adds launches that sort `lines` lines of n entries, all different. Returns where in scratch the first `keep` of each
/// line lie in order, line after line.
int64_t add_sort(Launches& to, const EntrySource& source, int64_t lines, int64_t n, int64_t keep);

/// Indices of operand `place` whose lines along `dim` are sorted by where they point, below `limit`.
struct Targets {
  const StridedView& index;
  int place, dim;
  int64_t limit;
};
/// Adds launches that sort them: where in scratch each line's entries lie (uint64_t: the target above, the place in the
/// line in the low half). An index out of range sets the flag and counts as 0.
int64_t add_target_sort(Launches& to, const Targets& targets);

}  // namespace weft::cuda
