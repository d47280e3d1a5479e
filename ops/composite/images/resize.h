// Resizing of images and signals with PyTorch's arguments.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "framework/dispatch/arg.h"

namespace weft {

struct InterpolateOptions {
  Shape size = {};                        // sizes of the result's spatial dims: one number for all, or one for each
  std::vector<double> scale_factor = {};  // instead of size: the result has floor(n * factor) positions
  std::string_view mode = "nearest";      // or "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"
  bool align_corners = false;             // linear modes, bicubic: the corners' centres keep their places
  bool antialias = false;                 // bilinear, bicubic: a smaller result takes means over wider neighbourhoods
};

/// x [N, C, 1 to 3 spatial dims], resized along each spatial dim. Linear modes take the mean of two neighbours,
/// weighted by distance, "bicubic" of four in both dims by the cubic convolution (Keys 1981); "area" is
/// adaptive_avg_pool.
Tensor interpolate(const Arg& x, const InterpolateOptions& options);
/// The same with one factor for all spatial dims, nearest.
Tensor interpolate(const Arg& x, double scale_factor);

}  // namespace weft
