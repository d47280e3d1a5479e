#include "models/nn/layers/conv.h"

#include <cmath>

#include "ops/composite/arrange.h"
#include "ops/core/creation.h"

namespace weft::nn {

ConvParameters::ConvParameters(const std::string& name, int spatial, int64_t from, int64_t to, const Sizes& kernel_size,
                               int64_t groups, int64_t out, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(from > 0 && to > 0, name, ": need positive channels; got ", from, " and ", to);
  WEFT_CHECK(groups > 0 && from % groups == 0 && to % groups == 0, name, ": groups is ", groups,
             "; need a divisor of the channels ", from, " and ", to);
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

template <class Options>
constexpr bool kTransposed = std::is_same_v<Options, ConvTransposeOptions>;

// x with the padding of o around its spatial dims, for a padding_mode other than zeros.
static Tensor padded(const Tensor& x, int spatial, const Shape& weight, const ConvOptions& o, const char* op) {
  const bool same = o.padding.name == "same";
  const Shape width = o.padding.sizes.of(spatial, op, "padding"), step = o.dilation.of(spatial, op, "dilation");
  WEFT_CHECK(same || o.padding.name.empty() || o.padding.name == "valid", op, ": padding is '", o.padding.name,
             "'; need numbers, \"valid\" or \"same\"");
  std::vector<int64_t> pads;  // from the last dim backwards
  for (int i = spatial - 1; i >= 0; --i) {
    WEFT_CHECK(!same || o.stride.of(spatial, op, "stride")[i] == 1, op, ": padding \"same\" with stride ",
               static_cast<const Shape&>(o.stride), "; need a stride of 1");
    const int64_t both = same ? step[i] * (weight[i + 2] - 1) : 2 * width[i];
    pads.push_back(both / 2);
    pads.push_back(both - both / 2);
  }
  return o.padding.name == "valid" ? x : pad(x, pads, o.padding_mode);
}

template <int N, class Options>
ConvLayer<N, Options>::ConvLayer(int64_t in, int64_t out, const Sizes& kernel_size, const Options& o,
                                 std::source_location loc)
    : ConvParameters(str_cat(kTransposed<Options> ? "ConvTranspose" : "Conv", N, "d"), N,
                     kTransposed<Options> ? in : out, kTransposed<Options> ? out : in, kernel_size, o.groups,
                     o.bias ? out : 0, loc),
      options_(o) {
  if constexpr (!kTransposed<Options>) {
    internal::LineScope line(loc);
    const std::string& m = o.padding_mode;
    WEFT_CHECK(m == "zeros" || m == "reflect" || m == "replicate" || m == "circular", "Conv", N, "d: padding_mode is '",
               m, "'; need \"zeros\", \"reflect\", \"replicate\" or \"circular\"");
  }
}

template <int N, class Options>
Tensor ConvLayer<N, Options>::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  const Options& o = options_;
  static const std::string name = str_cat(kTransposed<Options> ? "conv_transpose" : "conv", N, "d");
  if constexpr (kTransposed<Options>)
    return call.result(internal::conv_transpose_nd(name.c_str(), N, x, weight, value_or_none(bias), o.stride, o.padding,
                                                   o.output_padding, o.groups, o.dilation));
  else if (o.padding_mode == "zeros")
    return call.result(
        internal::conv_nd(name.c_str(), N, x, weight, value_or_none(bias), o.stride, o.padding, o.dilation, o.groups));
  else
    return call.result(internal::conv_nd(
        name.c_str(), N, padded(internal::tensor_of(x, name.c_str()), N, weight.shape(), o, name.c_str()), weight,
        value_or_none(bias), o.stride, 0, o.dilation, o.groups));
}

template class ConvLayer<1, ConvOptions>;
template class ConvLayer<2, ConvOptions>;
template class ConvLayer<3, ConvOptions>;
template class ConvLayer<1, ConvTransposeOptions>;
template class ConvLayer<2, ConvTransposeOptions>;
template class ConvLayer<3, ConvTransposeOptions>;

}  // namespace weft::nn
