// Functions as layers, for nn::Sequential and as members. They have no parameters. Arguments and defaults equal the
// arguments and defaults of the function with the same name in lower case.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/nn/module.h"
#include "ops/composite/arrange.h"
#include "ops/composite/images/conv.h"
#include "ops/composite/images/resize.h"
#include "ops/composite/images/sample.h"
#include "ops/composite/layers/activation.h"
#include "ops/composite/layers/softmax.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::internal {
/// The pairs for pad() from one number, or from a pair for each of `spatial` dims; throws, naming the layer, otherwise.
std::vector<int64_t> pad_pairs(const Sizes& padding, int spatial, const char* layer);
}  // namespace weft::internal

namespace weft::nn {

/// A layer that calls a function of one tensor. parameters() does not contain parameters that the function uses:
/// register them in a module of your own.
class Lambda : public Module {
 public:
  explicit Lambda(std::function<Tensor(const Tensor&)> fn, std::source_location loc = std::source_location::current());
  Tensor operator()(const Arg& x) const;

 private:
  std::function<Tensor(const Tensor&)> fn_;
};

#define WEFT_FUNCTION_LAYER(Name, call)                      \
  class Name : public Lambda {                               \
   public:                                                   \
    Name() : Lambda([](const Tensor& x) { return call; }) {} \
  };
WEFT_FUNCTION_LAYER(Identity, x)
WEFT_FUNCTION_LAYER(ReLU, relu(x))
WEFT_FUNCTION_LAYER(SiLU, silu(x))
WEFT_FUNCTION_LAYER(Tanh, tanh(x))
WEFT_FUNCTION_LAYER(Sigmoid, sigmoid(x))
WEFT_FUNCTION_LAYER(LogSigmoid, logsigmoid(x))
WEFT_FUNCTION_LAYER(Mish, mish(x))
WEFT_FUNCTION_LAYER(ReLU6, relu6(x))
WEFT_FUNCTION_LAYER(SELU, selu(x))
WEFT_FUNCTION_LAYER(Hardsigmoid, hardsigmoid(x))
WEFT_FUNCTION_LAYER(Hardswish, hardswish(x))
WEFT_FUNCTION_LAYER(Softsign, softsign(x))
WEFT_FUNCTION_LAYER(Tanhshrink, tanhshrink(x))
#undef WEFT_FUNCTION_LAYER

#define WEFT_FUNCTION_LAYER_OF(Name, parameters, call)                          \
  class Name : public Lambda {                                                  \
   public:                                                                      \
    explicit Name parameters : Lambda([=](const Tensor& x) { return call; }) {} \
  };
WEFT_FUNCTION_LAYER_OF(GELU, (const std::string& approximate = "none"), gelu(x, approximate))
WEFT_FUNCTION_LAYER_OF(LeakyReLU, (double negative_slope = 0.01), leaky_relu(x, negative_slope))
WEFT_FUNCTION_LAYER_OF(ELU, (double alpha = 1), elu(x, alpha))
WEFT_FUNCTION_LAYER_OF(CELU, (double alpha = 1), celu(x, alpha))
WEFT_FUNCTION_LAYER_OF(GLU, (int64_t dim = -1), glu(x, dim))
WEFT_FUNCTION_LAYER_OF(Hardtanh, (double min_val = -1, double max_val = 1), hardtanh(x, min_val, max_val))
WEFT_FUNCTION_LAYER_OF(Softplus, (double beta = 1, double threshold = 20), softplus(x, beta, threshold))
WEFT_FUNCTION_LAYER_OF(Softmax, (int64_t dim), softmax(x, dim))
WEFT_FUNCTION_LAYER_OF(LogSoftmax, (int64_t dim), log_softmax(x, dim))
WEFT_FUNCTION_LAYER_OF(PixelShuffle, (int64_t upscale_factor), pixel_shuffle(x, upscale_factor))
WEFT_FUNCTION_LAYER_OF(PixelUnshuffle, (int64_t downscale_factor), pixel_unshuffle(x, downscale_factor))
WEFT_FUNCTION_LAYER_OF(Flatten, (int64_t start_dim = 1, int64_t end_dim = -1), flatten(x, start_dim, end_dim))
#undef WEFT_FUNCTION_LAYER_OF

/// pad() of the last N dims by one number on all sides, or by pairs (before, after) from the last dim backwards.
#define WEFT_PAD_LAYER(Name, N, parameters, how)                                               \
  class Name##N##d : public Lambda {                                                           \
   public:                                                                                     \
    explicit Name##N##d parameters                                                             \
        : Lambda([=, pairs = internal::pad_pairs(padding, N, #Name #N "d")](const Tensor& x) { \
          return pad(x, pairs, how);                                                           \
        }) {}                                                                                  \
  };
#define WEFT_PAD_LAYERS(Name, parameters, how) \
  WEFT_PAD_LAYER(Name, 1, parameters, how)     \
  WEFT_PAD_LAYER(Name, 2, parameters, how)     \
  WEFT_PAD_LAYER(Name, 3, parameters, how)
WEFT_PAD_LAYERS(ReflectionPad, (const Sizes& padding), "reflect")
WEFT_PAD_LAYERS(ReplicationPad, (const Sizes& padding), "replicate")
WEFT_PAD_LAYERS(CircularPad, (const Sizes& padding), "circular")
WEFT_PAD_LAYERS(ZeroPad, (const Sizes& padding), 0.0)
WEFT_PAD_LAYERS(ConstantPad, (const Sizes& padding, double value), value)
#undef WEFT_PAD_LAYERS
#undef WEFT_PAD_LAYER

/// x where x > 0, otherwise weight x (He et al. 2015, arXiv:1502.01852), with one weight or one for each slice along
/// dim 1, which start at `init`.
class PReLU : public Module {
 public:
  Parameter weight;  // [num_parameters]
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25,
                 std::source_location loc = std::source_location::current());
  Tensor operator()(const Arg& x) const;
};

/// interpolate with these options.
class Upsample : public Lambda {
 public:
  explicit Upsample(const InterpolateOptions& options, std::source_location loc = std::source_location::current());
};

/// Replaces dim by the dims `sizes`; one extent may be -1.
class Unflatten : public Lambda {
 public:
  Unflatten(int64_t dim, const Shape& sizes);
};

}  // namespace weft::nn
