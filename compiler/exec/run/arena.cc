#include "compiler/exec/run/arena.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

namespace weft::internal {
namespace {

// Bytes live at each time.
std::vector<int64_t> live_bytes(std::span<const Interval> intervals) {
  int32_t end = 0;
  for (const Interval& i : intervals) end = std::max(end, i.last + 1);
  std::vector<int64_t> live(end + 1, 0);
  for (const Interval& i : intervals) {
    live[i.first] += i.bytes;
    live[i.last + 1] -= i.bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  return live;
}

// Places the intervals in this order. Each gets the smallest gap that fits (or the lowest) between placed intervals
// live at the same time.
int64_t place_in(std::span<Interval> all, const std::vector<int32_t>& order, bool lowest) {
  std::vector<int32_t> placed;  // sorted by offset
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
        if (lowest) break;
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

std::vector<int32_t> numbers(size_t n) {
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int32_t> by_size(std::span<const Interval> all) {
  std::vector<int32_t> order = numbers(all.size());
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return all[a].bytes > all[b].bytes; });
  return order;
}

// Orders intervals by the most bytes live during their lifetime, then by size; the largest first.
std::vector<int32_t> by_need(std::span<const Interval> all) {
  const std::vector<int64_t> live = live_bytes(all);
  std::vector<int64_t> most(all.size(), 0);
  for (size_t i = 0; i < all.size(); ++i)
    most[i] = *std::max_element(live.begin() + all[i].first, live.begin() + all[i].last + 1);
  std::vector<int32_t> order = numbers(all.size());
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return most[a] != most[b] ? most[a] > most[b] : all[a].bytes > all[b].bytes;
  });
  return order;
}

// Places intervals in order of their first use, each into the smallest free range that fits, else at the end.
int64_t by_time(std::span<Interval> all) {
  std::vector<int32_t> order = numbers(all.size());
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
    // Grow the arena. Use the free range at its end, if there is one.
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
  const std::vector<int64_t> live = live_bytes(intervals);
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

int64_t place_intervals(std::span<Interval> intervals) {
  const int64_t least = most_live(intervals);
  std::vector<Interval> best(intervals.begin(), intervals.end());
  int64_t size = place_in(best, by_size(intervals), false);
  auto try_it = [&](auto&& place) {
    const int64_t now = place();
    if (now >= size) return;
    size = now;
    std::copy(intervals.begin(), intervals.end(), best.begin());
  };
  if (size > least) try_it([&] { return by_time(intervals); });
  // Intervals that end at the top come first in the next round. A round costs the square of the number of intervals.
  constexpr int64_t kRounds = 24, kWork = 2'000'000;
  const int64_t n = static_cast<int64_t>(intervals.size());
  const int64_t rounds = std::min(kRounds, kWork / std::max<int64_t>(n * n, 1));
  for (bool lowest : {false, true}) {
    std::vector<int32_t> order;
    for (int64_t round = 0; round < rounds && size > least; ++round) {
      if (round == 0) order = by_need(intervals);
      int64_t top = 0;
      try_it([&] { return top = place_in(intervals, order, lowest); });
      std::stable_partition(order.begin(), order.end(),
                            [&](int32_t i) { return intervals[i].offset + intervals[i].bytes == top; });
    }
  }
  std::copy(best.begin(), best.end(), intervals.begin());
  return size;
}

}  // namespace weft::internal
