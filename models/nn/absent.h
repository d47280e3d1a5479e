// Names of torch::nn in C++ that Weft spells in another way: a use is one error that says what to write. And
// nn::functional, the functions of namespace weft under PyTorch's name.
#pragma once
#include <concepts>
#include <initializer_list>

#include "models/nn/module.h"

namespace weft::nn::functional {
using namespace weft;
}  // namespace weft::nn::functional

namespace weft::internal {

/// What nn::Conv2dOptions(1, 32, 3).stride(2).bias(false) continues with after its error, so that it has no second one.
class OptionChain {
 public:
#define WEFT_OPTION(name)                   \
  template <class A>                        \
  const OptionChain& name(const A&) const { \
    return *this;                           \
  }
  WEFT_OPTION(stride)
  WEFT_OPTION(padding)
  WEFT_OPTION(output_padding)
  WEFT_OPTION(dilation)
  WEFT_OPTION(groups)
  WEFT_OPTION(bias)
  WEFT_OPTION(padding_mode)
  WEFT_OPTION(ceil_mode)
  WEFT_OPTION(num_layers)
  WEFT_OPTION(batch_first)
  WEFT_OPTION(bidirectional)
  WEFT_OPTION(dropout)
  WEFT_OPTION(eps)
  WEFT_OPTION(momentum)
  WEFT_OPTION(affine)
  WEFT_OPTION(elementwise_affine)
  WEFT_OPTION(track_running_stats)
  WEFT_OPTION(negative_slope)
  WEFT_OPTION(inplace)
#undef WEFT_OPTION
  template <std::derived_from<nn::Module> M>
  operator M() const;
};

}  // namespace weft::internal

namespace weft::nn {

#define WEFT_NO_OPTIONS(Name, layer)                                                              \
  struct Name : internal::OptionChain {                                                           \
    template <class... A>                                                                         \
    explicit Name(const A&...) {                                                                  \
      static_assert(sizeof...(A) > 99, #Name ": options are fields in braces: write nn::" layer); \
    }                                                                                             \
    template <class T>                                                                            \
    explicit Name(std::initializer_list<T> sizes) : Name(sizes.size()) {}                         \
  };
WEFT_NO_OPTIONS(Conv1dOptions, "Conv1d(4, 8, 3, {.stride = 2})")
WEFT_NO_OPTIONS(Conv2dOptions, "Conv2d(4, 8, 3, {.stride = 2})")
WEFT_NO_OPTIONS(Conv3dOptions, "Conv3d(4, 8, 3, {.stride = 2})")
WEFT_NO_OPTIONS(ConvTranspose1dOptions, "ConvTranspose1d(4, 8, 3, {.stride = 2})")
WEFT_NO_OPTIONS(ConvTranspose2dOptions, "ConvTranspose2d(4, 8, 3, {.stride = 2})")
WEFT_NO_OPTIONS(ConvTranspose3dOptions, "ConvTranspose3d(4, 8, 3, {.stride = 2})")
WEFT_NO_OPTIONS(MaxPool1dOptions, "MaxPool1d(2, {.stride = 2})")
WEFT_NO_OPTIONS(MaxPool2dOptions, "MaxPool2d(2, {.stride = 2})")
WEFT_NO_OPTIONS(AvgPool1dOptions, "AvgPool1d(2, {.stride = 2})")
WEFT_NO_OPTIONS(AvgPool2dOptions, "AvgPool2d(2, {.stride = 2})")
WEFT_NO_OPTIONS(LSTMOptions, "LSTM(4, 8, {.num_layers = 2})")
WEFT_NO_OPTIONS(GRUOptions, "GRU(4, 8, {.num_layers = 2})")
WEFT_NO_OPTIONS(RNNOptions, "RNN(4, 8, {.num_layers = 2})")
WEFT_NO_OPTIONS(DropoutOptions, "Dropout(0.5)")
WEFT_NO_OPTIONS(LeakyReLUOptions, "LeakyReLU(0.2)")
WEFT_NO_OPTIONS(BatchNorm1dOptions, "BatchNorm1d(8, {.eps = 1e-3})")
WEFT_NO_OPTIONS(BatchNorm2dOptions, "BatchNorm2d(8, {.eps = 1e-3})")
WEFT_NO_OPTIONS(BatchNorm3dOptions, "BatchNorm3d(8, {.eps = 1e-3})")
WEFT_NO_OPTIONS(LayerNormOptions, "LayerNorm({4, 8}, {.eps = 1e-3})")
#undef WEFT_NO_OPTIONS

namespace utils {
/// Does not exist: gradients are values.
template <class... A>
Tensor clip_grad_norm_(const A&...) {
  static_assert(sizeof...(A) > 99,
                "clip_grad_norm_: gradients are values: write auto [grads, norm] = optim::clip_grad_norm(grad(loss, "
                "model.parameters()), 1.0) and opt.step(grads)");
  return {};
}
template <class... A>
void clip_grad_value_(const A&...) {
  static_assert(sizeof...(A) > 99,
                "clip_grad_value_: gradients are values: write opt.step(optim::clip_grad_value(grad(loss, "
                "model.parameters()), 1.0))");
}
}  // namespace utils

}  // namespace weft::nn
