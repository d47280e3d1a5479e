#include "framework/base/nearest.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weft {
namespace {

// The longest names compared. The cost of a comparison is the product of the lengths; names that people type are
// shorter.
constexpr size_t kLongest = 200;

// Both are at most kLongest long.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::array<size_t, kLongest + 1> row;
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates, size_t limit) {
  const std::string* best = nullptr;
  if (name.size() > kLongest) return "";
  for (const std::string& c : candidates) {
    const size_t least = std::max(name.size(), c.size()) - std::min(name.size(), c.size());  // least distance
    if (c.size() > kLongest || least >= limit) continue;
    if (const size_t d = edit_distance(name, c); d < limit) best = &c, limit = d;
  }
  return best ? *best : std::string();
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  return nearest_name(name, candidates, std::min<size_t>(4, (name.size() + 5) / 3));
}

}  // namespace weft
