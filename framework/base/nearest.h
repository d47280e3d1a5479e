// The nearest of some names, for "did you mean".
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace weft {

/// The candidate that needs the fewest edits to become `name`: fewer than `limit`, else "". Among equally near ones the
/// longest common beginning decides. An edit inserts, deletes or replaces a character, or exchanges two neighbours.
/// Names of more than 200 characters are near to none.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates, size_t limit);
/// The same with the limit for names that people type: at most 3 edits, and fewer in short names.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace weft
