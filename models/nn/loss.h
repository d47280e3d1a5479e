// Losses as objects, with the names of torch.nn: nn::CrossEntropyLoss criterion; criterion(logits, targets). They call
// the functions of ops/composite/loss and have no parameters.
#pragma once
#include <string_view>

#include "framework/dispatch/arg.h"
#include "ops/composite/loss/loss.h"

namespace weft::nn {

/// function(x, target, Options) with the options of the object.
#define WEFT_LOSS(Name, function, Options, none)                                                       \
  class Name {                                                                                         \
   public:                                                                                             \
    explicit Name(const Options& options = none) : options_(options) {}                                \
    Tensor operator()(const Arg& x, const Arg& target) const { return function(x, target, options_); } \
                                                                                                       \
   private:                                                                                            \
    Options options_;                                                                                  \
  };
WEFT_LOSS(CrossEntropyLoss, cross_entropy, CrossEntropyOptions, {})
WEFT_LOSS(NLLLoss, nll_loss, LossOptions, {})
WEFT_LOSS(BCELoss, binary_cross_entropy, BinaryCrossEntropyOptions, {})
WEFT_LOSS(BCEWithLogitsLoss, binary_cross_entropy_with_logits, BinaryCrossEntropyOptions, {})
WEFT_LOSS(MSELoss, mse_loss, std::string_view, "mean")
WEFT_LOSS(L1Loss, l1_loss, std::string_view, "mean")
WEFT_LOSS(SmoothL1Loss, smooth_l1_loss, std::string_view, "mean")
WEFT_LOSS(HuberLoss, huber_loss, std::string_view, "mean")
#undef WEFT_LOSS

}  // namespace weft::nn
