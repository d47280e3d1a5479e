// Losses that ask for a margin: between scores, or between distances. Dtypes and reductions are as in loss.h.
#pragma once
#include <string_view>

#include "framework/dispatch/arg.h"

namespace weft {

/// x where target is 1, max(0, margin - x) where it is -1, both where it is neither, as in PyTorch.
Tensor hinge_embedding_loss(const Arg& x, const Arg& target, double margin = 1, std::string_view reduction = "mean");
/// max(0, margin - target (x1 - x2)): with target 1, x1 should be the larger one; with -1, x2.
Tensor margin_ranking_loss(const Arg& x1, const Arg& x2, const Arg& target, double margin = 0,
                           std::string_view reduction = "mean");
/// log(1 + e^(-target x)), target 1 or -1.
Tensor soft_margin_loss(const Arg& x, const Arg& target, std::string_view reduction = "mean");
/// 1 - cos where target is 1, max(0, cos - margin) where it is -1; cos is the cosine of the angle between the vectors
/// in the last dim of x1 and x2: [..., D] with target [...].
Tensor cosine_embedding_loss(const Arg& x1, const Arg& x2, const Arg& target, double margin = 0,
                             std::string_view reduction = "mean");

struct TripletMarginOptions {
  double margin = 1;
  double p = 2;  // norm of the distance |anchor - other + eps|_p over the last dim
  double eps = 1e-6;
  bool swap = false;  // the distance from the positive to the negative counts if it is smaller
  std::string_view reduction = "mean";
};
/// max(0, margin + distance(anchor, positive) - distance(anchor, negative)); vectors in the last dim.
Tensor triplet_margin_loss(const Arg& anchor, const Arg& positive, const Arg& negative,
                           const TripletMarginOptions& options = {});

struct MultiMarginOptions {
  int p = 1;  // 1 or 2
  double margin = 1;
  Tensor weight = {};  // [C], of the target's class
  std::string_view reduction = "mean";
};
/// The sum of max(0, margin - x[target] + x[i])^p over the other classes i, divided by C; x[..., C], integer targets
/// [...]. A target out of range throws OutOfRange.
Tensor multi_margin_loss(const Arg& x, const Arg& target, const MultiMarginOptions& options = {});
/// The sum of max(0, 1 - (x[j] - x[i])) over all target classes j and other classes i, divided by C. Integer targets of
/// x's shape [..., C]: each row has its classes first; the first negative number ends them.
Tensor multilabel_margin_loss(const Arg& x, const Arg& target, std::string_view reduction = "mean");

struct MultilabelSoftMarginOptions {
  Tensor weight = {};  // [C]
  std::string_view reduction = "mean";
};
/// The mean over the last dim of -(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))).
Tensor multilabel_soft_margin_loss(const Arg& x, const Arg& target, const MultilabelSoftMarginOptions& options = {});

}  // namespace weft
