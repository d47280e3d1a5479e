// Pixels moved between channels and places, and images read at computed places, with PyTorch's arguments.
#pragma once
#include <string_view>

#include "framework/dispatch/arg.h"

namespace weft {

/// [..., C r r, H, W] as [..., C, H r, W r]: r r channels become a block of r x r pixels (pixel_unshuffle: back).
Tensor pixel_shuffle(const Arg& x, int64_t upscale_factor);
Tensor pixel_unshuffle(const Arg& x, int64_t downscale_factor);

/// The places [N, H, W, 2] (x, y) that the affine maps theta [N, 2, 3] give to the pixels of images of size [N, C, H,
/// W], or [N, D, H, W, 3] for theta [N, 3, 4]. -1 and 1 are the edges of an image, or, if align_corners is set, the
/// centres of its outer pixels.
Tensor affine_grid(const Arg& theta, const Shape& size, bool align_corners = false);

struct GridSampleOptions {
  std::string_view mode = "bilinear";       // "bilinear" (also of volumes) or "nearest"
  std::string_view padding_mode = "zeros";  // outside of x: "zeros", "border" or "reflection"
  bool align_corners = false;
};
/// The values of x [N, C, H, W] or [N, C, D, H, W] at the places grid [N, out..., 2 or 3], as affine_grid gives them:
/// [N, C, out...].
Tensor grid_sample(const Arg& x, const Arg& grid, const GridSampleOptions& options = {});
Tensor grid_sample(const Arg& x, const Arg& grid, std::string_view mode, std::string_view padding_mode = "zeros",
                   bool align_corners = false);

}  // namespace weft
