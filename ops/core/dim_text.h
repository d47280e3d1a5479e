// Names for the factors of dim maps whose text depends on the rank: "a b c ...".
#pragma once
#include <string>
#include <vector>

namespace weft::internal {

/// The i-th factor's name: a, b, ..., z, a1, b1, ...
inline std::string factor_name(int i) {
  std::string s(1, static_cast<char>('a' + i % 26));
  return i < 26 ? s : s + std::to_string(i / 26);
}

/// The words, separated by spaces.
inline std::string join_words(const std::vector<std::string>& words) {
  std::string s;
  for (const std::string& w : words) s += (s.empty() ? "" : " ") + w;
  return s;
}

}  // namespace weft::internal
