// Convolution layers with PyTorch's arguments and initialisation.
#pragma once
#include <concepts>

#include "models/nn/module.h"
#include "ops/composite/images/conv.h"

namespace weft::nn {

/// The parameters of a convolution or transposed convolution, with PyTorch's initialisation.
class ConvParameters : public Module {
 public:
  using Module::Module;
  Parameter weight;
  Parameter bias;  // [out]; undefined without bias

 protected:
  /// weight [from, to / groups, kernel...]; `out` is the number of biases, or 0.
  ConvParameters(const std::string& name, int spatial, int64_t from, int64_t to, const Sizes& kernel_size,
                 int64_t groups, int64_t out, std::source_location loc);
};

struct ConvOptions {
  Sizes stride = 1;
  weft::internal::Padding padding = 0;
  Sizes dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  // or "reflect", "replicate", "circular", as in pad()
};

struct ConvTransposeOptions {
  Sizes stride = 1;
  Sizes padding = 0;
  Sizes output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Sizes dilation = 1;
};

/// The options select the convolution or its transpose.
template <int N, class Options>
class ConvLayer : public ConvParameters {
 public:
  using ConvParameters::ConvParameters;
  ConvLayer(int64_t in, int64_t out, const Sizes& kernel_size, const Options& options = {},
            std::source_location loc = std::source_location::current());
  /// PyTorch's next arguments: Conv2d(4, 8, 3, 2) and Conv2d(4, 8, 3, 2, 1). A template, so that {} are options.
  template <std::integral S>
  ConvLayer(int64_t in, int64_t out, const Sizes& kernel_size, S stride, const decltype(Options::padding)& padding = 0,
            std::source_location loc = std::source_location::current())
      : ConvLayer(in, out, kernel_size, Options{.stride = stride, .padding = padding}, loc) {}
  Tensor operator()(const Arg& x) const;

 private:
  Options options_;
};
/// y = conv(x, weight) + bias over N spatial dims, for x [N, in, spatial...] and weight [out, in / groups, kernel...].
template <int N>
using Conv = ConvLayer<N, ConvOptions>;
using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;
/// The transpose of a convolution from `out` to `in` channels, for x [N, in, spatial...] and weight [in, out / groups,
/// kernel...].
template <int N>
using ConvTranspose = ConvLayer<N, ConvTransposeOptions>;
using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;

}  // namespace weft::nn
