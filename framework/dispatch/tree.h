// Flattens arguments and results of users: Tensor, tuple, pair, array, vector, or an aggregate of up to 8 of them.
#pragma once
#include <array>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"

namespace weft {
namespace internal {

struct AnyField {
  template <class T>
  operator T() const;
};
template <class T, size_t... I>
constexpr bool constructible_with(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyField{})...}; };
}
template <class T, size_t N = 8>
constexpr size_t field_count() {
  if constexpr (N == 0) {
    return 0;
  } else if constexpr (constructible_with<T>(std::make_index_sequence<N>())) {
    return N;
  } else {
    return field_count<T, N - 1>();
  }
}
/// Calls fn with references to the fields of an aggregate.
template <class T, class Fn>
auto with_fields(T& v, Fn&& fn) {
  constexpr size_t n = field_count<std::remove_const_t<T>>();
  static_assert(n > 0, "weft: need a Tensor, tuple, array, vector, or a struct of 1 to 8 of them");
  if constexpr (n == 1) {
    auto& [a] = v;
    return fn(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = v;
    return fn(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = v;
    return fn(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = v;
    return fn(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = v;
    return fn(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, f] = v;
    return fn(a, b, c, d, e, f);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, f, g] = v;
    return fn(a, b, c, d, e, f, g);
  } else {
    auto& [a, b, c, d, e, f, g, h] = v;
    return fn(a, b, c, d, e, f, g, h);
  }
}

/// A vector, or a class that derives from one.
template <class T>
inline constexpr bool is_vector = requires(const T& t) {
  []<class U>(const std::vector<U>&) {}(t);
};
template <class T>
inline constexpr bool is_array = false;
template <class T, size_t N>
inline constexpr bool is_array<std::array<T, N>> = true;
template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;

}  // namespace internal

/// Appends the tensors inside `v`, in order.
template <class T>
void flatten(const T& v, std::vector<Tensor>& out) {
  if constexpr (std::is_convertible_v<const T&, Tensor>) {
    out.push_back(v);
  } else if constexpr (internal::is_vector<T> || internal::is_array<T>) {
    for (const auto& x : v) flatten(x, out);
  } else if constexpr (internal::is_tuple<T>) {
    std::apply([&](const auto&... x) { (flatten(x, out), ...); }, v);
  } else {
    internal::with_fields(v, [&](const auto&... x) { (flatten(x, out), ...); });
  }
}

/// A value with the structure of `like` and with tensors from `in`, starting at `at`.
template <class T>
T unflatten(const T& like, std::span<const Tensor> in, size_t& at) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return in[at++];
  } else if constexpr (internal::is_vector<T>) {
    T v = like;
    for (auto& x : v) x = unflatten(x, in, at);
    return v;
  } else if constexpr (internal::is_array<T>) {
    T v;
    for (size_t i = 0; i < v.size(); ++i) v[i] = unflatten(like[i], in, at);
    return v;
  } else if constexpr (internal::is_tuple<T>) {
    return std::apply([&](const auto&... x) { return T{unflatten(x, in, at)...}; }, like);
  } else {
    return internal::with_fields(like, [&](const auto&... x) { return T{unflatten(x, in, at)...}; });
  }
}

}  // namespace weft
