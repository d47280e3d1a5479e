#include "ops/composite/literal.h"

#include "ops/core/fits.h"
#include "ops/core/pointwise.h"

namespace weft {

using internal::LineScope;

void Literal::add_integer(int64_t value, DType dtype) {
  if (integers_.size() == numbers_.size()) integers_.push_back(value);
  numbers_.push_back(static_cast<double>(value));
  dtype_ = dtype_ ? promote(*dtype_, dtype) : dtype;
}

void Literal::add_number(double value, DType dtype) {
  numbers_.push_back(value);
  dtype_ = dtype_ ? promote(*dtype_, dtype) : dtype;
}

void Literal::add_row(const Literal& row) {
  if (shape_[0] == 0) {
    for (int64_t n : row.shape_) shape_.push_back(n);
  } else {
    const Shape first(std::span<const int64_t>(shape_.begin() + 1, shape_.end()));
    if (first != row.shape_)
      problem_ = str_cat("rows 0 and ", shape_[0], " have shapes ", first, " and ", row.shape_, "; need equal shapes");
  }
  ++shape_[0];
  if (problem_.empty()) problem_ = row.problem_;
  if (integers_.size() == numbers_.size())
    integers_.insert(integers_.end(), row.integers_.begin(), row.integers_.end());
  numbers_.insert(numbers_.end(), row.numbers_.begin(), row.numbers_.end());
  if (row.dtype_) dtype_ = dtype_ ? promote(*dtype_, *row.dtype_) : *row.dtype_;
}

namespace {

template <class T, class From>
Tensor converted(const std::vector<From>& from, const Shape& shape) {
  std::vector<T> to;
  for (From v : from) {
    if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
      to.push_back(T(static_cast<float>(v)));
    } else {
      to.push_back(static_cast<T>(v));
    }
  }
  return Tensor::from_vector(to, shape);
}

// The host converts here instead of an op, so that the tensor has values in a captured function too.
template <class From>
Tensor stored(const std::vector<From>& from, const Shape& shape, DType dtype) {
  const auto as = [&]<class T>(T) { return converted<T>(from, shape); };
  if (dtype == kBool) return as(bool{});
  if (!is_floating(dtype)) return with_integer(dtype, as);
  return itemsize(dtype) > 1 ? with_float(dtype, as) : cast(as(float{}), dtype);
}

Tensor made(const Literal& values, const LiteralOptions& options, const char* op) {
  WEFT_CHECK(values.problem().empty(), op, ": ", values.problem());
  const DType dtype = options.dtype.value_or(values.dtype());
  const bool exact = values.integers().size() == values.numbers().size();
  if (exact) {
    for (int64_t v : values.integers()) internal::check_fits(op, v, dtype);
  } else {
    for (double v : values.numbers()) internal::check_fits(op, v, dtype);
  }
  Tensor t = exact ? stored(values.integers(), values.shape(), dtype) : stored(values.numbers(), values.shape(), dtype);
  if (options.device != Device::cpu()) t = t.to(options.device);
  return options.requires_grad ? t.requires_grad() : t;
}

}  // namespace

Tensor tensor(const Literal& values, const LiteralOptions& options, std::source_location loc) {
  LineScope here(loc);
  return made(values, options, "tensor");
}

Tensor scalar(const Literal& value, const LiteralOptions& options, std::source_location loc) {
  LineScope here(loc);
  WEFT_CHECK(value.shape().empty(), "scalar: got numbers of shape ", value.shape(), "; need one number, or tensor()");
  return made(value, options, "scalar");
}

}  // namespace weft
