// Numbers in texts.
#pragma once
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

namespace weft {
namespace internal {
template <class T>
inline constexpr T kMostOf = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                                  : std::numeric_limits<T>::max();
template <class T>
inline constexpr T kLeastOf = std::numeric_limits<T>::has_infinity ? -kMostOf<T> : std::numeric_limits<T>::lowest();
}  // namespace internal

/// The number that is the whole text; nothing if the text is another one or the number is not from `least` to `most`.
/// A floating type also has the texts "inf" and "nan"; a NaN is in each range.
template <class T>
std::optional<T> parse_number(std::string_view text, T least = internal::kLeastOf<T>, T most = internal::kMostOf<T>) {
  T n{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < least || n > most) return {};
  return n;
}

}  // namespace weft
