// Tensors of numbers that are written in the program: tensor({{1.0, 2.0}, {3.0, 4.0}}).
#pragma once
#include <concepts>
#include <optional>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft {

/// A number, or numbers in nested braces or vectors; rows of one level have equal shapes.
class Literal {
 public:
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) Literal(T value) {
    add(value);
  }
  Literal(std::initializer_list<Literal> rows) : shape_{0} {
    for (const Literal& row : rows) add_row(row);
  }
  template <class T>
  Literal(const std::vector<T>& rows) : shape_{0} {
    if constexpr (requires(Literal l, T v) { l.add(v); }) {
      for (const auto v : rows) add(static_cast<T>(v));
      shape_[0] = static_cast<int64_t>(rows.size());
      dtype_ = natural<T>();
    } else {
      for (const T& row : rows) add_row(row);
    }
  }

  const Shape& shape() const { return shape_; }
  /// bool, u8, i8 (char too), i16, i64 (other integers), f32 (float and double), f16 or bf16, promoted over all
  /// numbers; f32 if there are none.
  DType dtype() const { return dtype_.value_or(kFloat32); }
  /// All numbers in row-major order, as doubles and, where each is an integer, exactly.
  const std::vector<double>& numbers() const { return numbers_; }
  const std::vector<int64_t>& integers() const { return integers_; }
  /// The fault of the literal; empty if it has none.
  const std::string& problem() const { return problem_; }

 private:
  // The dtype of a tensor of T.
  template <class T>
  static constexpr DType natural() {
    if constexpr (std::is_same_v<T, char>) return kInt8;
    if constexpr (HasDType<T> && sizeof(T) < 4) return DTypeOf<T>::value;
    return std::integral<T> ? kInt64 : kFloat32;
  }
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) void add(T value) {
    if constexpr (std::integral<T>) {
      if constexpr (std::is_same_v<T, uint64_t> || std::is_same_v<T, unsigned long long>)
        if (value > INT64_MAX) problem_ = weft::str_cat(value, " does not fit i64; need less than 2^63");
      add_integer(static_cast<int64_t>(value), natural<T>());
    } else {
      add_number(static_cast<double>(value), natural<T>());
    }
  }
  void add_integer(int64_t value, DType dtype);
  void add_number(double value, DType dtype);
  void add_row(const Literal& row);

  Shape shape_;
  std::optional<DType> dtype_;
  std::vector<double> numbers_;
  std::vector<int64_t> integers_;  // the same numbers, as long as all are integers
  std::string problem_;
};

struct LiteralOptions {
  std::optional<DType> dtype = {};  // default: the numbers' dtype
  Device device = Device::cpu();
  bool requires_grad = false;
};

/// A tensor of these numbers: integers give i64, numbers with a fraction f32, bools bool, as torch.tensor.
Tensor tensor(const Literal& values, const LiteralOptions& options = {},
              std::source_location loc = std::source_location::current());
template <std::same_as<DType> D>
Tensor tensor(const Literal& values, D dtype, std::source_location loc = std::source_location::current()) {
  return tensor(values, LiteralOptions{.dtype = dtype}, loc);
}
/// A 0-d tensor of this number.
Tensor scalar(const Literal& value, const LiteralOptions& options = {},
              std::source_location loc = std::source_location::current());

}  // namespace weft
