#include "models/data/transforms.h"

#include <algorithm>

#include "models/data/mix.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::data::transforms {

using weft::internal::LineScope;

namespace {

Tensor image_of(const Arg& image, const char* op) {
  const Tensor& t = weft::internal::tensor_of(image, op);
  WEFT_CHECK(t.dim() >= 3, op, ": image is ", t.type(), "; need [..., channels, height, width]");
  return t;
}

Shape two_of(const Shape& size, const char* op) {
  bool positive = size.size() == 1 || size.size() == 2;
  for (int64_t n : size) positive = positive && n > 0;
  WEFT_CHECK(positive, op, ": size is ", size, "; need one positive number or two");
  return size.size() == 2 ? size : Shape{size[0], size[0]};
}

// A number of [0, 1) for one use of a seed.
double uniform_of(uint64_t seed, uint64_t use) { return static_cast<double>(mix64(mix64(seed) ^ use) >> 11) * 0x1p-53; }

}  // namespace

Tensor resize(const Arg& image, const Shape& size, std::string_view mode) {
  LineScope line(image.line());
  const Tensor x = image_of(image, "resize");
  Shape to = two_of(size, "resize");
  const int64_t h = x.size(-2), w = x.size(-1);
  if (size.size() == 1)
    to = h <= w ? Shape{size[0], size[0] * w / std::max<int64_t>(h, 1)}
                : Shape{size[0] * h / std::max<int64_t>(w, 1), size[0]};
  const bool whole = !is_floating(x.dtype());
  const Tensor in = reshape(whole ? x.to(kFloat32) : x, {-1, x.size(-3), h, w});
  Tensor y = interpolate(in, {.size = to, .mode = mode});
  if (whole) y = round(y).to(x.dtype());
  Shape shape = x.shape();
  shape[x.dim() - 2] = to[0], shape[x.dim() - 1] = to[1];
  return reshape(y, shape);
}

Tensor crop(const Arg& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  LineScope line(image.line());
  const Tensor x = image_of(image, "crop");
  const int64_t h = x.size(-2), w = x.size(-1);
  WEFT_CHECK(top >= 0 && left >= 0 && height > 0 && width > 0 && height <= h - top && width <= w - left,
             "crop: the part of ", height, " x ", width, " at row ", top, " and column ", left,
             " is not inside of the image ", x.type(), "; need a part of its ", h, " x ", w, " positions");
  return x.slice(-2, top, top + height).slice(-1, left, left + width);
}

Tensor center_crop(const Arg& image, const Shape& size) {
  const Tensor x = image_of(image, "center_crop");
  const Shape to = two_of(size, "center_crop");
  return crop(image, (x.size(-2) - to[0] + 1) / 2, (x.size(-1) - to[1] + 1) / 2, to[0], to[1]);
}

Tensor hflip(const Arg& image) { return flip(image_of(image, "hflip"), -1); }
Tensor vflip(const Arg& image) { return flip(image_of(image, "vflip"), -2); }

Tensor normalize(const Arg& image, const std::vector<double>& mean, const std::vector<double>& deviation) {
  LineScope line(image.line());
  const Tensor x = image_of(image, "normalize");
  const auto channels = static_cast<size_t>(x.size(-3));
  WEFT_CHECK(is_floating(x.dtype()), "normalize: image is ", x.type(), "; need floats: x.to(kFloat32) / 255.0");
  WEFT_CHECK(mean.size() == channels && deviation.size() == channels, "normalize: got ", mean.size(), " means and ",
             deviation.size(), " deviations for ", channels, " channels; need one of each for a channel");
  for (double d : deviation) WEFT_CHECK(d > 0, "normalize: a deviation is ", d, "; need positive numbers");
  const auto of = [&](const std::vector<double>& v) {
    return Tensor::from_vector<double>(v, {x.size(-3), 1, 1}).to(x.dtype()).to(x.device());
  };
  return (x - of(mean)) / of(deviation);
}

Tensor random_crop(const Arg& image, const Shape& size, uint64_t seed, int64_t padding) {
  LineScope line(image.line());
  Tensor x = image_of(image, "random_crop");
  WEFT_CHECK(padding >= 0, "random_crop: padding is ", padding, "; need 0 or more");
  if (padding > 0) x = pad(x, {padding, padding, padding, padding});
  const Shape to = two_of(size, "random_crop");
  const auto place = [&](int64_t extent, int64_t part, uint64_t use) {
    const int64_t places = std::max<int64_t>(extent - part + 1, 1);
    return static_cast<int64_t>(uniform_of(seed, use) * static_cast<double>(places));
  };
  return crop(x, place(x.size(-2), to[0], 1), place(x.size(-1), to[1], 2), to[0], to[1]);
}

Tensor random_horizontal_flip(const Arg& image, uint64_t seed, double p) {
  WEFT_CHECK(p >= 0 && p <= 1, "random_horizontal_flip: p is ", p, "; need a probability from 0 to 1");
  return uniform_of(seed, 3) < p ? hflip(image) : image_of(image, "random_horizontal_flip");
}

}  // namespace weft::data::transforms
