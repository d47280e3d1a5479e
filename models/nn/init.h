// nn::init: new values for parameters, as torch.nn.init makes them (its names, without the underscore at their end).
// They replace the value of the cell: nn::init::xavier_uniform(layer.weight). Numbers come from the default generator.
#pragma once
#include <source_location>
#include <string_view>

#include "framework/dispatch/parameter.h"

namespace weft::nn::init {

using Loc = std::source_location;

/// Uniform on [a, b).
void uniform(const CellHandle& p, double a = 0, double b = 1, Loc loc = Loc::current());
void normal(const CellHandle& p, double mean = 0, double std = 1, Loc loc = Loc::current());
/// Normal, truncated to [a, b]; a and b are absolute values.
void trunc_normal(const CellHandle& p, double mean = 0, double std = 1, double a = -2, double b = 2,
                  Loc loc = Loc::current());
void constant(const CellHandle& p, double value, Loc loc = Loc::current());
void zeros(const CellHandle& p, Loc loc = Loc::current());
void ones(const CellHandle& p, Loc loc = Loc::current());
/// The identity; p has two dims.
void eye(const CellHandle& p, Loc loc = Loc::current());
/// Convolutions [out, in, 1 to 3 dims] that keep their first channels: 1 in the middle of filter (i, i) of each group.
void dirac(const CellHandle& p, int64_t groups = 1, Loc loc = Loc::current());

/// The factor by which a nonlinearity needs larger weights: 1 for "linear", "conv1d", the other layers and "sigmoid",
/// 5/3 for "tanh", sqrt(2) for "relu", sqrt(2 / (1 + param^2)) for "leaky_relu" (param is its slope), 3/4 for "selu".
double calculate_gain(std::string_view nonlinearity, double param = 0.01, Loc loc = Loc::current());

// Fan in is the number of elements of p[0], and fan out is the number of elements of p[:, 0]. p has two or more dims.
/// Uniform within gain sqrt(6 / (fan in + fan out)) (Glorot and Bengio 2010).
void xavier_uniform(const CellHandle& p, double gain = 1, Loc loc = Loc::current());
/// Normal with std gain sqrt(2 / (fan in + fan out)).
void xavier_normal(const CellHandle& p, double gain = 1, Loc loc = Loc::current());
/// Uniform within gain sqrt(3 / fan); the gain is calculate_gain(nonlinearity, a), the fan is `mode`, "fan_in" or
/// "fan_out" (He et al. 2015, arXiv:1502.01852).
void kaiming_uniform(const CellHandle& p, double a = 0, std::string_view mode = "fan_in",
                     std::string_view nonlinearity = "leaky_relu", Loc loc = Loc::current());
/// Normal with std gain / sqrt(fan).
void kaiming_normal(const CellHandle& p, double a = 0, std::string_view mode = "fan_in",
                    std::string_view nonlinearity = "leaky_relu", Loc loc = Loc::current());
/// gain times orthonormal rows, or columns if there are fewer of them, of p as a matrix [p[0], rest] (Saxe et al. 2013,
/// arXiv:1312.6120). Computed on the host in f64, so not inside compiled functions.
void orthogonal(const CellHandle& p, double gain = 1, Loc loc = Loc::current());
/// Normal; in each column, the share `sparsity` of the rows, rounded up, is 0. p has two dims.
void sparse(const CellHandle& p, double sparsity, double std = 0.01, Loc loc = Loc::current());

// Errors: PyTorch's names end with an underscore, because they write to a tensor.
#define WEFT_NO_UNDERSCORE(name)                                                                    \
  template <class... A>                                                                             \
  void name##_(const A&...) {                                                                       \
    static_assert(sizeof...(A) > 99, "nn::init: write nn::init::" #name "(p), without underscore"); \
  }
WEFT_NO_UNDERSCORE(uniform)
WEFT_NO_UNDERSCORE(normal)
WEFT_NO_UNDERSCORE(trunc_normal)
WEFT_NO_UNDERSCORE(constant)
WEFT_NO_UNDERSCORE(zeros)
WEFT_NO_UNDERSCORE(ones)
WEFT_NO_UNDERSCORE(xavier_uniform)
WEFT_NO_UNDERSCORE(xavier_normal)
WEFT_NO_UNDERSCORE(kaiming_uniform)
WEFT_NO_UNDERSCORE(kaiming_normal)
WEFT_NO_UNDERSCORE(orthogonal)
#undef WEFT_NO_UNDERSCORE

}  // namespace weft::nn::init
