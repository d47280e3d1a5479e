// Functions of PyTorch that Weft does not have: a call is one error that says what to write. A call finds them by its
// operands alone, because their namespace belongs to a base of Tensor. A program with `using namespace weft` may
// therefore have a complex or an fft of its own: a function, a type, a namespace, or `using std::complex`.
#pragma once
#include <concepts>

#include "framework/tensor/tensor.h"

namespace weft::internal::absent {

#define WEFT_ABSENT(name, text)               \
  template <std::convertible_to<Tensor>... T> \
  Tensor name(const T&...) {                  \
    static_assert(sizeof...(T) > 99, text);   \
    return {};                                \
  }
WEFT_ABSENT(fft, "fft: Weft has no Fourier transforms: transform the data before the step")
WEFT_ABSENT(complex, "complex: Weft has no complex dtypes: keep real and imaginary parts as two tensors")
WEFT_ABSENT(to_sparse, "to_sparse: Weft has no sparse tensors: a mixture of experts has grouped_matmul")
#undef WEFT_ABSENT

}  // namespace weft::internal::absent
