#include "compiler/exec/arena.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

namespace weft::internal {
namespace {

// Largest first, each at the lowest gap that fits among those placed before that live at the same time.
int64_t by_size(std::span<Interval> all) {
  std::vector<int32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return all[a].bytes > all[b].bytes; });
  std::vector<int32_t> placed;  // by offset
  placed.reserve(all.size());
  int64_t size = 0;
  for (int32_t id : order) {
    Interval& want = all[id];
    int64_t at = 0, best = -1, best_gap = INT64_MAX;
    for (int32_t other : placed) {
      const Interval& o = all[other];
      if (o.last < want.first || want.last < o.first) continue;
      int64_t gap = o.offset - at;
      if (gap >= want.bytes && gap < best_gap) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, o.offset + o.bytes);
    }
    want.offset = best >= 0 ? best : at;
    size = std::max(size, want.offset + want.bytes);
    auto after = std::upper_bound(placed.begin(), placed.end(), want.offset,
                                  [&](int64_t offset, int32_t o) { return offset < all[o].offset; });
    placed.insert(after, id);
  }
  return size;
}

// In order of birth, into the smallest free range that fits, at the end otherwise.
int64_t by_time(std::span<Interval> all) {
  std::vector<int32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return all[a].first < all[b].first; });
  std::vector<int32_t> deaths = order;
  std::stable_sort(deaths.begin(), deaths.end(), [&](int32_t a, int32_t b) { return all[a].last < all[b].last; });
  std::map<int64_t, int64_t> free;  // offset -> bytes
  int64_t size = 0;
  size_t dead = 0;
  auto release = [&](int64_t offset, int64_t bytes) {
    auto next = free.lower_bound(offset);
    if (next != free.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = free.erase(next);
    }
    if (next != free.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    }
    free[offset] = bytes;
  };
  for (int32_t id : order) {
    Interval& want = all[id];
    for (; dead < deaths.size() && all[deaths[dead]].last < want.first; ++dead)
      release(all[deaths[dead]].offset, all[deaths[dead]].bytes);
    auto best = free.end();
    for (auto it = free.begin(); it != free.end(); ++it)
      if (it->second >= want.bytes && (best == free.end() || it->second < best->second)) best = it;
    if (best != free.end()) {
      auto [offset, bytes] = *best;
      free.erase(best);
      want.offset = offset;
      if (bytes > want.bytes) free[offset + want.bytes] = bytes - want.bytes;
      continue;
    }
    // Grow, using the free range that touches the end if there is one.
    int64_t at = size;
    if (!free.empty()) {
      auto last = std::prev(free.end());
      if (last->first + last->second == size) {
        at = last->first;
        free.erase(last);
      }
    }
    want.offset = at;
    size = at + want.bytes;
  }
  return size;
}

}  // namespace

int64_t most_live(std::span<const Interval> intervals) {
  int32_t end = 0;
  for (const Interval& i : intervals) end = std::max(end, i.last + 1);
  std::vector<int64_t> change(end + 1, 0);
  for (const Interval& i : intervals) {
    change[i.first] += i.bytes;
    change[i.last + 1] -= i.bytes;
  }
  int64_t live = 0, most = 0;
  for (int64_t c : change) most = std::max(most, live += c);
  return most;
}

int64_t place_intervals(std::span<Interval> intervals) {
  int64_t size = by_size(intervals);
  if (size == most_live(intervals)) return size;
  std::vector<Interval> other(intervals.begin(), intervals.end());
  int64_t size2 = by_time(other);
  if (size2 < size) {
    std::copy(other.begin(), other.end(), intervals.begin());
    size = size2;
  }
  return size;
}

}  // namespace weft::internal
