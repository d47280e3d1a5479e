// Tests if two declarations of one C function are called alike: used to check our declarations against a vendor's
// headers.
#pragma once
#include <type_traits>

namespace weft::cuda::testing {

/// True if values of A and B have the same size and are passed in the same way: the same arithmetic type, an enum of
/// the same size, a pointer to equivalent types (const if const), or a struct. Structs are compared field by field
/// elsewhere. Here, any two structs of the same size are alike, and an incomplete struct is like any struct.
template <class A, class B>
constexpr bool same_abi();

namespace internal {

template <class T, class = void>
inline constexpr bool complete = false;
template <class T>
inline constexpr bool complete<T, std::void_t<decltype(sizeof(T))>> = true;

template <class A, class B>
struct SameFunction : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameFunction<R(A...), S(B...)>
    : std::bool_constant<same_abi<R, S>() && (same_abi<A, B>() && ...)> {
};

template <class A, class B>
constexpr bool same_integer() {
  return sizeof(A) == sizeof(B) && std::is_integral_v<A> == std::is_integral_v<B> &&
         std::is_signed_v<A> == std::is_signed_v<B>;
}

}  // namespace internal

template <class A, class B>
constexpr bool same_abi() {
  if constexpr (std::is_same_v<A, B>) {
    return true;
  } else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    return same_abi<std::remove_pointer_t<A>, std::remove_pointer_t<B>>();
  } else if constexpr (std::is_const_v<A> != std::is_const_v<B>) {
    return false;
  } else if constexpr (std::is_const_v<A>) {
    return same_abi<std::remove_const_t<A>, std::remove_const_t<B>>();
  } else if constexpr (std::is_function_v<A> && std::is_function_v<B>) {
    return internal::SameFunction<A, B>::value;
  } else if constexpr (std::is_enum_v<A> && std::is_enum_v<B>) {
    return sizeof(A) == sizeof(B);
  } else if constexpr (std::is_arithmetic_v<A> && std::is_arithmetic_v<B>) {
    return internal::same_integer<A, B>();  // unsigned long and unsigned long long are alike
  } else if constexpr ((std::is_class_v<A> || std::is_union_v<A>)&&(std::is_class_v<B> || std::is_union_v<B>)) {
    if constexpr (internal::complete<A> && internal::complete<B>) return sizeof(A) == sizeof(B);
    return true;
  } else {
    return false;
  }
}

}  // namespace weft::cuda::testing
