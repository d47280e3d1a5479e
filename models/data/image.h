// Pictures as tensors, by libpng and libjpeg: a target of its own (//models/data:image), so that other programs need
// not link them.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "framework/tensor/tensor.h"

namespace weft::data {

/// The channels of a picture: as they are stored, or converted.
enum class ImageMode { kUnchanged, kGray, kRgb, kRgba };

/// u8 [channels, height, width] of a PNG or JPEG file, as torchvision's: 16-bit PNGs lose their low byte, palettes
/// become RGB, gamma and orientation are ignored. kRgba needs a PNG. Throws an error that begins with the path if the
/// file is damaged, cut short, or has more than 2^28 pixels.
Tensor read_image(const std::string& path, ImageMode mode = ImageMode::kUnchanged,
                  std::source_location loc = std::source_location::current());
/// The same from bytes; `what` names them in errors.
Tensor decode_image(std::span<const std::byte> bytes, ImageMode mode = ImageMode::kUnchanged,
                    const std::string& what = "decode_image",
                    std::source_location loc = std::source_location::current());

}  // namespace weft::data
