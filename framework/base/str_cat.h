// Concatenates values into text for messages. Kept small because weft.h includes it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace weft {
namespace internal {

void append(std::string& s, double v);
void append(std::string& s, int64_t v);
void append(std::string& s, uint64_t v);
inline void append(std::string& s, std::string_view v) { s.append(v); }
inline void append(std::string& s, const char* v) { s.append(v); }
inline void append(std::string& s, char v) { s.push_back(v); }
inline void append(std::string& s, bool v) { s.append(v ? "true" : "false"); }

template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>) void append(std::string& s,
                                                                                                    T v) {
  if constexpr (std::is_signed_v<T>) {
    append(s, static_cast<int64_t>(v));
  } else {
    append(s, static_cast<uint64_t>(v));
  }
}
template <class T>
requires requires(const T& v) { v.to_string(); }
void append(std::string& s, const T& v) { s.append(v.to_string()); }
template <class T>
requires requires(T v) { to_string_view(v); }
void append(std::string& s, T v) { s.append(to_string_view(v)); }
template <class T>
void append(std::string& s, std::span<const T> v) {
  s.push_back('[');
  for (size_t i = 0; i < v.size(); ++i) {
    if (i) s.append(", ");
    append(s, v[i]);
  }
  s.push_back(']');
}
template <class T>
void append(std::string& s, const std::vector<T>& v) {
  append(s, std::span<const T>(v));
}

}  // namespace internal

/// Joins the text of its arguments: numbers, strings, vectors, and anything with to_string().
template <class... A>
std::string str_cat(const A&... a) {
  std::string s;
  (internal::append(s, a), ...);
  return s;
}

/// Text by a format of printf.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);

}  // namespace weft
