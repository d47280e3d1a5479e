// Masks over images and videos: a token's coordinates are computed from its index and compared dim by dim.
#include "ops/attention/masks/masks.h"
#include "ops/core/core.h"

namespace weft::attention {
namespace {

using internal::LineScope;
using Extents = std::vector<int64_t>;
using Coordinates = std::vector<Tensor>;

std::string text(const Extents& e) { return str_cat(e); }

template <size_t n>
Extents list(const std::array<int64_t, n>& a) {
  return {a.begin(), a.end()};
}

Coordinates rows_of(const Extents& canvas, Tensor i) {
  Coordinates c(canvas.size());
  for (size_t d = canvas.size(); d-- > 1;) {
    c[d] = remainder(i, canvas[d]);
    i = floor_divide(i, canvas[d]);
  }
  c[0] = i;
  return c;
}

// For tokens stored tile by tile: the tile's position in the grid of tiles and the token's position in the tile.
Extents tiles_of(const Extents& canvas, const Extents& tile) {
  Extents r;
  for (size_t d = 0; d < canvas.size(); ++d) r.push_back(canvas[d] / tile[d]);
  return r;
}
int64_t volume(const Extents& e) {
  int64_t n = 1;
  for (int64_t x : e) n *= x;
  return n;
}
Coordinates tiled(const Extents& canvas, const Extents& tile, const Tensor& i) {
  const int64_t n = volume(tile);
  Coordinates at = rows_of(tiles_of(canvas, tile), floor_divide(i, n)), in = rows_of(tile, remainder(i, n));
  for (size_t d = 0; d < at.size(); ++d) at[d] = at[d] * tile[d] + in[d];
  return at;
}

// Extracts and compacts every second bit (Morton 1966).
Tensor even_bits(Tensor x) {
  x = bit_and(x, 0x5555555555555555);
  x = bit_and(x | shift_right(x, 1), 0x3333333333333333);
  x = bit_and(x | shift_right(x, 2), 0x0f0f0f0f0f0f0f0f);
  x = bit_and(x | shift_right(x, 4), 0x00ff00ff00ff00ff);
  x = bit_and(x | shift_right(x, 8), 0x0000ffff0000ffff);
  return bit_and(x | shift_right(x, 16), 0x00000000ffffffff);
}

// |clamp(q, kernel / 2, n - 1 - kernel / 2) - kv| <= kernel / 2 in every dim.
Tensor near(const Extents& canvas, const Extents& kernel, const Coordinates& q, const Coordinates& kv) {
  Tensor all;
  for (size_t d = 0; d < canvas.size(); ++d) {
    const int64_t half = kernel[d] / 2;
    const Tensor one = abs(minimum(maximum(q[d], half), canvas[d] - 1 - half) - kv[d]) <= half;
    all = d ? all & one : one;
  }
  return all;
}

void check_kernel(const char* op, const Extents& canvas, const Extents& kernel) {
  for (size_t d = 0; d < canvas.size(); ++d)
    WEFT_CHECK(kernel[d] >= 1 && kernel[d] % 2 == 1 && kernel[d] <= canvas[d], op, ": kernel ", text(kernel),
               " on a canvas ", text(canvas), "; need odd extents, none larger than the canvas");
}
void check_tile(const char* op, const Extents& canvas, const Extents& tile) {
  for (size_t d = 0; d < canvas.size(); ++d)
    WEFT_CHECK(tile[d] >= 1 && canvas[d] % tile[d] == 0, op, ": tile ", text(tile), " does not divide the canvas ",
               text(canvas), "; need whole tiles");
}

MaskMod neighborhood(const Extents& canvas, const Extents& kernel, const char* op) {
  check_kernel(op, canvas, kernel);
  return [canvas, kernel](Index, Index, Index q, Index kv) {
    return near(canvas, kernel, rows_of(canvas, q), rows_of(canvas, kv));
  };
}

MaskMod neighborhood_tiled(const Extents& canvas, const Extents& kernel, const Extents& tile, const char* op) {
  check_kernel(op, canvas, kernel);
  check_tile(op, canvas, tile);
  return [canvas, kernel, tile](Index, Index, Index q, Index kv) {
    return near(canvas, kernel, tiled(canvas, tile, q), tiled(canvas, tile, kv));
  };
}

MaskMod sta(const Extents& canvas, const Extents& kernel, const Extents& tile, int64_t text_tokens, const char* op) {
  check_tile(op, canvas, tile);
  const Extents tiles = tiles_of(canvas, tile), window = tiles_of(kernel, tile);
  for (size_t d = 0; d < canvas.size(); ++d)
    WEFT_CHECK(kernel[d] % tile[d] == 0 && window[d] % 2 == 1 && window[d] <= tiles[d], op, ": kernel ", text(kernel),
               " with tile ", text(tile), " on a canvas ", text(canvas),
               "; need an odd number of tiles in each dim, inside the canvas");
  WEFT_CHECK(text_tokens >= 0, op, ": text is ", text_tokens, "; need 0 or more tokens");
  const int64_t per_tile = volume(tile), vision = volume(canvas), all = vision + text_tokens;
  return [=](Index, Index, Index q, Index kv) {
    const Tensor seen =
        near(tiles, window, rows_of(tiles, floor_divide(q, per_tile)), rows_of(tiles, floor_divide(kv, per_tile)));
    const Tensor picture = (q < vision) & (kv < vision) & seen;
    if (!text_tokens) return picture;
    return picture | (((q >= vision) | (kv >= vision)) & (kv < all));
  };
}

}  // namespace

MaskMod neighborhood_1d(int64_t canvas, int64_t kernel, Loc loc) {
  LineScope here(loc);
  return neighborhood({canvas}, {kernel}, "attention::neighborhood_1d");
}
MaskMod neighborhood_2d(std::array<int64_t, 2> canvas, std::array<int64_t, 2> kernel, Loc loc) {
  LineScope here(loc);
  return neighborhood(list(canvas), list(kernel), "attention::neighborhood_2d");
}
MaskMod neighborhood_3d(std::array<int64_t, 3> canvas, std::array<int64_t, 3> kernel, Loc loc) {
  LineScope here(loc);
  return neighborhood(list(canvas), list(kernel), "attention::neighborhood_3d");
}
MaskMod neighborhood_2d_tiled(std::array<int64_t, 2> canvas, std::array<int64_t, 2> kernel, std::array<int64_t, 2> tile,
                              Loc loc) {
  LineScope here(loc);
  return neighborhood_tiled(list(canvas), list(kernel), list(tile), "attention::neighborhood_2d_tiled");
}
MaskMod neighborhood_3d_tiled(std::array<int64_t, 3> canvas, std::array<int64_t, 3> kernel, std::array<int64_t, 3> tile,
                              Loc loc) {
  LineScope here(loc);
  return neighborhood_tiled(list(canvas), list(kernel), list(tile), "attention::neighborhood_3d_tiled");
}

MaskMod neighborhood_2d_morton(int64_t canvas, std::array<int64_t, 2> kernel, Loc loc) {
  LineScope here(loc);
  const Extents square{canvas, canvas};
  check_kernel("attention::neighborhood_2d_morton", square, list(kernel));
  WEFT_CHECK((canvas & (canvas - 1)) == 0, "attention::neighborhood_2d_morton: canvas is ", canvas,
             "; need a power of 2");
  return [square, kernel](Index, Index, Index q, Index kv) {
    const auto at = [](const Tensor& i) { return Coordinates{even_bits(shift_right(i, 1)), even_bits(i)}; };
    return near(square, list(kernel), at(q), at(kv));
  };
}

MaskMod sta_2d(std::array<int64_t, 2> canvas, std::array<int64_t, 2> kernel, std::array<int64_t, 2> tile, int64_t text,
               Loc loc) {
  LineScope here(loc);
  return sta(list(canvas), list(kernel), list(tile), text, "attention::sta_2d");
}
MaskMod sta_3d(std::array<int64_t, 3> canvas, std::array<int64_t, 3> kernel, std::array<int64_t, 3> tile, int64_t text,
               Loc loc) {
  LineScope here(loc);
  return sta(list(canvas), list(kernel), list(tile), text, "attention::sta_3d");
}

MaskMod svg_spatial(int64_t prompt, int64_t frame, int64_t window, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(prompt >= 0 && frame >= 1 && window >= 0, "attention::svg_spatial: prompt ", prompt, ", frame ", frame,
             ", window ", window, "; need prompt >= 0, frame >= 1, window >= 0");
  return [=](Index, Index, Index q, Index kv) { return (q < prompt) | (kv < prompt + frame) | (abs(q - kv) < window); };
}

MaskMod svg_temporal(int64_t prompt, int64_t frame, int64_t window, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(prompt >= 0 && frame >= 1 && window >= 0, "attention::svg_temporal: prompt ", prompt, ", frame ", frame,
             ", window ", window, "; need prompt >= 0, frame >= 1, window >= 0");
  return [=](Index, Index, Index q, Index kv) {
    return (q < prompt) | (kv < prompt) | (abs(remainder(q - prompt, frame) - remainder(kv - prompt, frame)) < window);
  };
}

}  // namespace weft::attention
