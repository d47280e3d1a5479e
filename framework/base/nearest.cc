#include "framework/base/nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace weft {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates, size_t limit) {
  const std::string* best = nullptr;
  for (const std::string& c : candidates)
    if (const size_t d = edit_distance(name, c); d < limit) best = &c, limit = d;
  return best ? *best : std::string();
}

}  // namespace weft
