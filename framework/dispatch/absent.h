// Functions of PyTorch that Weft does not have: a call is one error that says what to write.
#pragma once
#include <concepts>

#include "framework/tensor/tensor.h"

namespace weft {

#define WEFT_ABSENT(name, text)               \
  template <std::convertible_to<Tensor>... T> \
  Tensor name(const T&...) {                  \
    static_assert(sizeof...(T) > 99, text);   \
    return {};                                \
  }
WEFT_ABSENT(fft, "fft: Weft has no Fourier transforms: transform the data before the step")
WEFT_ABSENT(complex, "complex: Weft has no complex dtypes: keep real and imaginary parts as two tensors")
WEFT_ABSENT(to_sparse, "to_sparse: Weft has no sparse tensors: a mixture of experts has grouped_matmul")
namespace profiler {
WEFT_ABSENT(start, "profiler: a profile belongs to a call: write profile([&] { step(x); }, 10).save(\"trace.json\")")
}  // namespace profiler
#undef WEFT_ABSENT
namespace hooks {
template <class... T>
void register_backward_hook(const T&...) {
  static_assert(sizeof...(T) > 99, "register_backward_hook: modules have no hooks: write custom_grad around the value");
}
}  // namespace hooks

}  // namespace weft
