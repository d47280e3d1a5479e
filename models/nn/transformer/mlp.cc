#include "models/nn/transformer/mlp.h"

#include "ops/composite/layers/activation.h"
#include "ops/core/pointwise.h"

namespace weft::nn {

Mlp::Mlp(int64_t dim, int64_t hidden, const MlpOptions& o, std::source_location loc)
    : up(dim, hidden, {.bias = o.bias, .std = o.std}, loc),
      down(hidden, dim, {.bias = o.bias, .std = o.down_std > 0 ? o.down_std : o.std}, loc),
      gelu_(o.gelu) {
  register_module("up", up);
  register_module("down", down);
}

Tensor Mlp::operator()(const Arg& x) const {
  NameScope scope("ffn");
  CallScope call(*this, x.line());
  return call.result(down(gelu(up(x), gelu_)));
}

SwiGlu::SwiGlu(int64_t dim, int64_t hidden, const SwiGluOptions& o, std::source_location loc)
    : gate(dim, hidden, {.bias = o.bias, .std = o.std}, loc),
      up(dim, hidden, {.bias = o.bias, .std = o.std}, loc),
      down(hidden, dim, {.bias = o.bias, .std = o.down_std > 0 ? o.down_std : o.std}, loc) {
  register_module("gate", gate);
  register_module("up", up);
  register_module("down", down);
}

Tensor SwiGlu::operator()(const Arg& x) const {
  NameScope scope("ffn");
  CallScope call(*this, x.line());
  return call.result(down(silu(gate(x)) * up(x)));
}

}  // namespace weft::nn
