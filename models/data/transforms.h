// Changes of images [..., channels, height, width], with torchvision's names. Random ones are functions of a seed: give
// them the seed of a dataset's get(index, seed), so that neither workers nor their number change the images.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "framework/dispatch/arg.h"

namespace weft::data::transforms {

/// The image with `size` {height, width}, or with this length of its shorter side. `mode` is as in interpolate(), which
/// has no antialiasing; integers are rounded.
Tensor resize(const Arg& image, const Shape& size, std::string_view mode = "bilinear");
/// The part of these extents from row `top` and column `left` on; throws if it is not inside of the image.
Tensor crop(const Arg& image, int64_t top, int64_t left, int64_t height, int64_t width);
/// The middle part of `size` {height, width}, or square.
Tensor center_crop(const Arg& image, const Shape& size);
/// The image mirrored from left to right, or from top to bottom.
Tensor hflip(const Arg& image);
Tensor vflip(const Arg& image);
/// (image - mean) / std, with one number for each channel; the image has floats.
Tensor normalize(const Arg& image, const std::vector<double>& mean, const std::vector<double>& std);
/// A part of `size` {height, width}, or square, at a random place, after `padding` zeros on each side.
Tensor random_crop(const Arg& image, const Shape& size, uint64_t seed, int64_t padding = 0);
/// hflip with probability p.
Tensor random_horizontal_flip(const Arg& image, uint64_t seed, double p = 0.5);

}  // namespace weft::data::transforms
