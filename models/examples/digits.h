// Generated pictures of digits for the examples: glyphs of 5 x 7 dots, moved, scaled, turned and slanted at random, and
// noise. They need no download, and a seed always gives the same pictures.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "weft.h"

namespace weft::examples {

constexpr int64_t kSide = 28;

struct Digits {
  Tensor images;  // [n, 1, kSide, kSide], from 0 (paper) to 1 (ink)
  Tensor labels;  // [n], i64
};

/// A row of a glyph has 5 bits.
constexpr int kGlyphs[10][7] = {{14, 17, 19, 21, 25, 17, 14}, {4, 12, 4, 4, 4, 4, 14},  {14, 17, 1, 2, 4, 8, 31},
                                {31, 2, 4, 2, 1, 17, 14},     {2, 6, 10, 18, 31, 2, 2}, {31, 16, 30, 1, 1, 17, 14},
                                {6, 8, 16, 30, 17, 17, 14},   {31, 1, 2, 4, 8, 8, 8},   {14, 17, 17, 14, 17, 17, 14},
                                {14, 17, 17, 15, 1, 2, 12}};

/// The ink of a glyph at (row, column) in units of dots, between dots by linear interpolation.
inline double ink_at(int digit, double row, double column) {
  const int r = static_cast<int>(std::floor(row)), c = static_cast<int>(std::floor(column));
  const auto dot = [&](int i, int j) {
    return i >= 0 && i < 7 && j >= 0 && j < 5 && (kGlyphs[digit][i] >> (4 - j) & 1);
  };
  const double y = row - r, x = column - c;
  return (1 - y) * ((1 - x) * dot(r, c) + x * dot(r, c + 1)) + y * ((1 - x) * dot(r + 1, c) + x * dot(r + 1, c + 1));
}

/// n pictures; `noise` is the standard deviation of each pixel.
inline Digits make_digits(int64_t n, uint64_t seed, double noise) {
  std::mt19937_64 random(seed);
  const auto uniform = [&](double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random); };
  std::normal_distribution<double> normal(0, noise > 0 ? noise : 1);
  std::vector<float> pixels;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < n; ++i) {
    const int digit = static_cast<int>(random() % 10);
    labels.push_back(digit);
    const double angle = uniform(-0.25, 0.25), slant = uniform(-0.3, 0.3), ink = uniform(0.7, 1);
    const double height = uniform(2.2, 3.3), width = uniform(2.4, 3.8);  // pixels per dot
    const double y0 = kSide / 2.0 + uniform(-3, 3), x0 = kSide / 2.0 + uniform(-3, 3);
    for (int64_t r = 0; r < kSide; ++r)
      for (int64_t c = 0; c < kSide; ++c) {
        const double dy = r + 0.5 - y0, dx = c + 0.5 - x0;
        const double v = std::cos(angle) * dy - std::sin(angle) * dx, u = std::sin(angle) * dy + std::cos(angle) * dx;
        const double value = ink * ink_at(digit, v / height + 3, (u - slant * v) / width + 2);
        pixels.push_back(static_cast<float>(std::clamp(value + (noise > 0 ? normal(random) : 0), 0.0, 1.0)));
      }
  }
  return {Tensor::from_vector(pixels, {n, 1, kSide, kSide}), Tensor::from_vector(labels, {n})};
}

/// Prints pictures [n, 1, kSide, kSide] side by side, two rows of pixels per line.
inline void print_pictures(const Tensor& images) {
  const std::vector<float> v = images.to_vector<float>();
  for (int64_t r = 0; r < kSide; r += 2, std::puts(""))
    for (int64_t i = 0; i < images.size(0); ++i)
      for (int64_t c = 0; c < kSide; ++c) {
        const float* at = &v[(i * kSide + r) * kSide + c];
        std::putchar(" .:+*#"[std::min(5, static_cast<int>(3 * (at[0] + at[kSide])))]);
      }
}

}  // namespace weft::examples
