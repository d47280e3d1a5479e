#include "framework/base/nearest.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

// The longest names compared. The cost of a comparison is the product of the lengths; names that people type are
// shorter.
constexpr size_t kLongest = 200;

// The optimal string alignment distance: like most typing mistakes, two exchanged neighbours are one edit. Both are at
// most kLongest long.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::array<std::array<size_t, kLongest + 1>, 3> rows;  // the rows of the last three prefixes of a
  for (size_t i = 0; i <= a.size(); ++i) {
    const auto &before = rows[(i + 2) % 3], &second = rows[(i + 1) % 3];
    auto& row = rows[i % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = row[j - 1] + 1;
      if (i == 0) continue;
      row[j] = std::min({row[j], before[j] + 1, before[j - 1] + (a[i - 1] != b[j - 1])});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) row[j] = std::min(row[j], second[j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates, size_t limit) {
  const std::string* best = nullptr;
  size_t best_same = 0;
  if (name.size() > kLongest) return "";
  for (const std::string& c : candidates) {
    const size_t least = std::max(name.size(), c.size()) - std::min(name.size(), c.size());  // least distance
    if (c.size() > kLongest || least > limit) continue;
    const size_t d = edit_distance(name, c);
    const auto same = static_cast<size_t>(std::ranges::mismatch(name, c).in1 - name.begin());
    if (d < limit || (best && d == limit && same > best_same)) best = &c, best_same = same, limit = d;
  }
  return best ? *best : std::string();
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  return nearest_name(name, candidates, std::min<size_t>(4, (name.size() + 5) / 3));
}

}  // namespace weft
