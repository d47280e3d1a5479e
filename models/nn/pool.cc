#include "models/nn/pool.h"

namespace weft::nn {

template <int N>
Tensor MaxPool<N>::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  static const std::string name = str_cat("max_pool", N, "d");
  return internal::max_pool_nd(name.c_str(), N, x, kernel_size_, options_.stride, options_.padding, options_.dilation,
                               options_.ceil_mode);
}

template <int N>
Tensor AvgPool<N>::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  static const std::string name = str_cat("avg_pool", N, "d");
  return internal::avg_pool_nd(name.c_str(), N, x, kernel_size_, options_.stride, options_.padding, options_.ceil_mode,
                               options_.count_include_pad);
}

template <int N, bool kMax>
Tensor AdaptivePool<N, kMax>::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  static const std::string name = str_cat(kMax ? "adaptive_max_pool" : "adaptive_avg_pool", N, "d");
  return internal::adaptive_pool_nd(name.c_str(), N, x, output_size_, kMax);
}

template class MaxPool<1>;
template class MaxPool<2>;
template class MaxPool<3>;
template class AvgPool<1>;
template class AvgPool<2>;
template class AvgPool<3>;
template class AdaptivePool<1, false>;
template class AdaptivePool<2, false>;
template class AdaptivePool<3, false>;
template class AdaptivePool<1, true>;
template class AdaptivePool<2, true>;
template class AdaptivePool<3, true>;

}  // namespace weft::nn
