// Reads PNG and JPEG pictures as tensors, with libpng and libjpeg. Only programs that depend on //models/data:image
// link these libraries.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "framework/tensor/tensor.h"

namespace weft::data {

/// The channels of a picture, unchanged or converted.
enum class ImageMode { kUnchanged, kGray, kRgb, kRgba };

/// Returns a PNG or JPEG file as u8 [channels, height, width]. As in torchvision, 16-bit PNGs lose their low byte,
/// palettes become RGB, and gamma and orientation are ignored. kRgba needs a PNG. Throws an error that begins with the
/// path if the file is damaged, cut short, or has more than 2^28 pixels.
Tensor read_image(const std::string& path, ImageMode mode = ImageMode::kUnchanged,
                  std::source_location loc = std::source_location::current());
/// Decodes a file in memory as read_image() does; `what` names it in errors.
Tensor decode_image(std::span<const std::byte> bytes, ImageMode mode = ImageMode::kUnchanged,
                    const std::string& what = "decode_image",
                    std::source_location loc = std::source_location::current());

}  // namespace weft::data
