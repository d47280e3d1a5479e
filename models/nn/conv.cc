#include "models/nn/conv.h"

#include <cmath>

namespace weft::nn {

ConvParameters::ConvParameters(const std::string& name, int spatial, int64_t from, int64_t to, const Sizes& kernel_size,
                               int64_t groups, int64_t out, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(from > 0 && to > 0, name, ": need positive channels; got ", from, " and ", to);
  WEFT_CHECK(groups > 0 && from % groups == 0 && to % groups == 0, name, ": groups is ", groups,
             "; need one that divides the channels ", from, " and ", to);
  Shape shape{from, to / groups};
  for (int64_t k : kernel_size.of(spatial, name.c_str(), "kernel_size")) {
    WEFT_CHECK(k > 0, name, ": kernel_size is ", static_cast<const Shape&>(kernel_size), "; need positive sizes");
    shape.push_back(k);
  }
  // Uniform within 1 / sqrt(number of elements in one result's sum).
  const double bound = 1 / ::std::sqrt(static_cast<double>(shape.numel() / from));
  weight = uniform_parameter(shape, bound);
  register_parameter("weight", weight);
  if (out == 0) return;
  bias = uniform_parameter({out}, bound);
  register_parameter("bias", bias);
}

template <int N>
Conv<N>::Conv(int64_t in, int64_t out, const Sizes& kernel_size, const ConvOptions& options, std::source_location loc)
    : ConvParameters(str_cat("Conv", N, "d"), N, out, in, kernel_size, options.groups, options.bias ? out : 0, loc),
      options_(options) {}

template <int N>
ConvTranspose<N>::ConvTranspose(int64_t in, int64_t out, const Sizes& kernel_size, const ConvTransposeOptions& options,
                                std::source_location loc)
    : ConvParameters(str_cat("ConvTranspose", N, "d"), N, in, out, kernel_size, options.groups, options.bias ? out : 0,
                     loc),
      options_(options) {}

template <int N>
Tensor Conv<N>::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  static const std::string name = str_cat("conv", N, "d");
  return internal::conv_nd(name.c_str(), N, x, weight, value_or_none(bias), options_.stride, options_.padding,
                           options_.dilation, options_.groups);
}

template <int N>
Tensor ConvTranspose<N>::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  static const std::string name = str_cat("conv_transpose", N, "d");
  return internal::conv_transpose_nd(name.c_str(), N, x, weight, value_or_none(bias), options_.stride, options_.padding,
                                     options_.output_padding, options_.groups, options_.dilation);
}

template class Conv<1>;
template class Conv<2>;
template class Conv<3>;
template class ConvTranspose<1>;
template class ConvTranspose<2>;
template class ConvTranspose<3>;

}  // namespace weft::nn
