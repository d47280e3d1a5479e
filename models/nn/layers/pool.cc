#include "models/nn/layers/pool.h"

namespace weft::nn {
namespace {

// "MaxPool2d": the name of the windows' ops, which a layer without parameters may have from nowhere else.
std::string class_name(const char* prefix, bool max, int n) {
  return str_cat(prefix, max ? "MaxPool" : "AvgPool", n, "d");
}

}  // namespace

template <int N, class Options>
Tensor Pool<N, Options>::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  const Options& o = options_;
  constexpr bool kMax = std::is_same_v<Options, MaxPoolOptions>;
  static const std::string name = str_cat(kMax ? "max_pool" : "avg_pool", N, "d");
  const NameScope scope(class_name("", kMax, N));
  if constexpr (kMax)
    return call.result(
        internal::max_pool_nd(name.c_str(), N, x, kernel_size_, o.stride, o.padding, o.dilation, o.ceil_mode));
  else
    return call.result(internal::avg_pool_nd(name.c_str(), N, x, kernel_size_, o.stride, o.padding, o.ceil_mode,
                                             o.count_include_pad, o.divisor_override));
}

template <int N, class Options>
ValuesIndices Pool<N, Options>::with_indices(const Arg& x) const requires std::is_same_v<Options, MaxPoolOptions> {
  CallScope call(*this, x.line());
  const Options& o = options_;
  static const std::string name = str_cat("max_pool", N, "d");
  const NameScope scope(class_name("", true, N));
  ValuesIndices r;
  r.values =
      internal::max_pool_nd(name.c_str(), N, x, kernel_size_, o.stride, o.padding, o.dilation, o.ceil_mode, &r.indices);
  return call.result(r);
}

template <int N>
Tensor MaxUnpool<N>::operator()(const Arg& x, const Arg& indices, const Shape& output_size) const {
  CallScope call(*this, x.line());
  static const std::string name = str_cat("max_unpool", N, "d");
  const NameScope scope(str_cat("MaxUnpool", N, "d"));
  return call.result(internal::max_unpool_nd(name.c_str(), N, x, indices, kernel_size_, options_.stride,
                                             options_.padding, output_size));
}

template <int N, bool kMax>
Tensor AdaptivePool<N, kMax>::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  static const std::string name = str_cat(kMax ? "adaptive_max_pool" : "adaptive_avg_pool", N, "d");
  const NameScope scope(class_name("Adaptive", kMax, N));
  return call.result(internal::adaptive_pool_nd(name.c_str(), N, x, output_size_, kMax));
}

template class Pool<1, MaxPoolOptions>;
template class Pool<2, MaxPoolOptions>;
template class Pool<3, MaxPoolOptions>;
template class Pool<1, AvgPoolOptions>;
template class Pool<2, AvgPoolOptions>;
template class Pool<3, AvgPoolOptions>;
template class MaxUnpool<1>;
template class MaxUnpool<2>;
template class MaxUnpool<3>;
template class AdaptivePool<1, false>;
template class AdaptivePool<2, false>;
template class AdaptivePool<3, false>;
template class AdaptivePool<1, true>;
template class AdaptivePool<2, true>;
template class AdaptivePool<3, true>;

}  // namespace weft::nn
