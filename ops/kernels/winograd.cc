#include "ops/kernels/winograd.h"

#include <algorithm>
#include <cstring>

#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/tables.h"
#include "ops/kernels/winograd_isa.h"

namespace weft::kernels {
namespace {

constexpr int kPlaces = 16;      // elements of a transformed tile
constexpr int64_t kBlock = 512;  // tiles whose products are in memory at once
constexpr int64_t kGrain = 16;   // tiles of one pool task
constexpr GemmFilled kFilled{.a = 4, .b = 4};

const WinogradFns& fns() {
  static const WinogradFns& f = WEFT_SELECT(winograd_fns)();
  return f;
}

int64_t aligned(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

// Parts of the scratch memory.
class Scratch {
 public:
  explicit Scratch(void* base) : at_(static_cast<char*>(base)) {}
  float* floats(int64_t n) {
    char* const p = at_;
    at_ += aligned(n * 4);
    return reinterpret_cast<float*>(p);
  }
  void* rest() const { return at_; }

 private:
  char* at_;
};

// An element of a transformed line of four: x[first] + sign * x[second]; kNone is a zero.
constexpr int kNone = -1;
struct Pair {
  int first, second;
  float sign;
};
constexpr Pair kOperand[] = {{0, 2, -1}, {1, 2, 1}, {2, 1, -1}, {1, 3, -1}};          // of 4 elements
constexpr Pair kGradient[] = {{0, kNone, 1}, {0, 1, 1}, {0, 1, -1}, {kNone, 1, -1}};  // of 2 elements

// One side of the 16 products: the tiles of an image, transformed while they are packed. Batch b of the product is
// place b of the tiles; its lines are the channels of one tile.
struct Tiles {
  const float* data;
  int64_t n_stride, y_stride, x_stride;  // channels are contiguous
  int64_t rows, columns;                 // of the image; outside there are zeros
  int64_t first_row, first_column;       // of tile 0
  int64_t down, across;                  // tiles of an image
  const Pair* pairs;
  const float* zeros;
  int64_t begin = 0;        // the first tile of the product
  bool transposed = false;  // the tiles are the columns of the operand

  // The channels from `channel` on at row y and column x of image n.
  const float* line(int64_t n, int64_t y, int64_t x, int64_t channel) const {
    if (y < 0 || y >= rows || x < 0 || x >= columns) return zeros;
    return data + n * n_stride + y * y_stride + x * x_stride + channel;
  }

  static void run(const void* context, int64_t place, int64_t row, int64_t col, int64_t rows, int64_t cols, void* out,
                  int64_t ld) {
    const Tiles& t = *static_cast<const Tiles*>(context);
    const Pair v = t.pairs[place / 4], h = t.pairs[place % 4];
    const int64_t tile = t.begin + (t.transposed ? col : row), tiles = t.transposed ? cols : rows;
    const int64_t channel = t.transposed ? row : col, channels = t.transposed ? rows : cols;
    int64_t n = tile / (t.down * t.across), y = tile / t.across % t.down, x = tile % t.across;
    const auto combine = fns().combine;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t top = t.first_row + 2 * y, left = t.first_column + 2 * x;
      const auto at = [&](int a, int b) {
        return a == kNone || b == kNone ? t.zeros : t.line(n, top + a, left + b, channel);
      };
      const float* const four[] = {at(v.first, h.first), at(v.first, h.second), at(v.second, h.first),
                                   at(v.second, h.second)};
      combine(four, h.sign, v.sign, channels, static_cast<float*>(out) + i * ld);
      if (++x < t.across) continue;
      x = 0;
      if (++y < t.down) continue;
      y = 0;
      ++n;
    }
  }
  GemmFill fill() const { return {&Tiles::run, this, transposed, 4}; }
};

bool has_lines(const StridedView& v) { return v.strides[3] == 1 || v.shape[3] == 1; }
int64_t copy_size(const StridedView& v) { return has_lines(v) ? 0 : v.numel(); }

// v, or a copy with its channels next to each other.
StridedView with_lines(const StridedView& v, float* scratch) {
  if (has_lines(v)) return v;
  const StridedView copy{scratch, kFloat32, v.shape, contiguous_strides(v.shape)};
  cast_copy(v, copy);
  return copy;
}

Tiles tiles_of(const StridedView& v, int64_t down, int64_t across, const Pair* pairs, const float* zeros) {
  Tiles t{};
  t.data = v.as<float>();
  t.n_stride = v.strides[0], t.y_stride = v.strides[1], t.x_stride = v.strides[2];
  t.rows = v.shape[1], t.columns = v.shape[2];
  t.down = down, t.across = across;
  t.pairs = pairs;
  t.zeros = zeros;
  return t;
}

// The transformed kernels: [16, C, O].
void transform(const StridedView& w, float* u) {
  const int64_t outs = w.shape[0], channels = w.shape[1];
  parallel_chunks(channels, 4, [&](int64_t begin, int64_t end) {
    constexpr int64_t kPart = 128;
    float lines[9][kPart];
    const float* at[9];
    for (int k = 0; k < 9; ++k) at[k] = lines[k];
    for (int64_t c = begin; c < end; ++c)
      for (int64_t o = 0; o < outs; o += kPart) {
        const int64_t n = std::min(kPart, outs - o);
        const float* const from = w.as<float>() + c * w.strides[1] + o * w.strides[0];
        for (int64_t i = 0; i < n; ++i)
          for (int k = 0; k < 9; ++k)
            lines[k][i] = from[i * w.strides[0] + k / 3 * w.strides[2] + k % 3 * w.strides[3]];
        fns().weight(at, n, u + c * outs + o, channels * outs);
      }
  });
}

struct Sizes {
  Sizes(const StridedView& x, const StridedView& y)
      : channels(x.shape[3]),
        outs(y.shape[3]),
        down((y.shape[1] + 1) / 2),
        across((y.shape[2] + 1) / 2),
        tiles(y.shape[0] * down * across),
        block(std::min(tiles, kBlock)) {}
  int64_t channels, outs, down, across, tiles, block;
};

}  // namespace

int64_t winograd_workspace(const StridedView& x, const StridedView& w, const StridedView& y) {
  const Sizes s(x, y);
  return aligned(copy_size(x) * 4) + aligned(s.channels * 4) + aligned(kPlaces * w.shape[0] * s.channels * 4) +
         aligned(kPlaces * s.block * s.outs * 4) +
         gemm_workspace(kFloat32, kFloat32, kPlaces, s.block, s.outs, s.channels, {.a = kFilled.a});
}

void winograd(const StridedView& x, const StridedView& w, const StridedView& y, WinogradPadding padding,
              void* workspace) {
  const Sizes s(x, y);
  if (y.numel() == 0) return;
  Scratch scratch(workspace);
  const StridedView lines = with_lines(x, scratch.floats(copy_size(x)));
  float* const zeros = scratch.floats(s.channels);
  std::memset(zeros, 0, static_cast<size_t>(s.channels) * 4);
  float* const u = scratch.floats(kPlaces * s.channels * s.outs);
  float* const m = scratch.floats(kPlaces * s.block * s.outs);
  transform(w, u);
  Tiles tiles = tiles_of(lines, s.down, s.across, kOperand, zeros);
  tiles.first_row = -padding.rows, tiles.first_column = -padding.columns;
  const GemmFill fill = tiles.fill();
  const GemmHooks hooks{.a = &fill};
  const Shape u_shape{kPlaces, s.channels, s.outs};
  const StridedView b{u, kFloat32, u_shape, contiguous_strides(u_shape)};
  for (; tiles.begin < s.tiles; tiles.begin += s.block) {
    const int64_t count = std::min(s.block, s.tiles - tiles.begin);
    const Shape a_shape{kPlaces, count, s.channels}, c_shape{kPlaces, count, s.outs};
    gemm({nullptr, kFloat32, a_shape, contiguous_strides(a_shape)}, b,
         {m, kFloat32, c_shape, contiguous_strides(c_shape)}, scratch.rest(), &hooks);
    parallel_chunks(count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t tile = tiles.begin + i, n = tile / (s.down * s.across);
        const int64_t row = tile / s.across % s.down * 2, column = tile % s.across * 2;
        float* const out = y.as<float>() + ((n * y.shape[1] + row) * y.shape[2] + column) * s.outs;
        // A result outside the image is written to the place of one inside, which is written after it.
        const int64_t next = column + 1 < y.shape[2] ? s.outs : 0,
                      under = row + 1 < y.shape[1] ? y.shape[2] * s.outs : 0;
        float* const results[] = {out, out + next, out + under, out + under + next};
        fns().output(m + i * s.outs, count * s.outs, s.outs, results);
      }
    });
  }
}

int64_t winograd_weight_gradient_workspace(const StridedView& x, const StridedView& g, const StridedView&) {
  const Sizes s(x, g);
  return aligned(copy_size(x) * 4) + aligned(copy_size(g) * 4) + aligned(std::max(s.channels, s.outs) * 4) +
         aligned(kPlaces * s.outs * s.channels * 4) +
         gemm_workspace(kFloat32, kFloat32, kPlaces, s.outs, s.channels, s.tiles, kFilled);
}

void winograd_weight_gradient(const StridedView& x, const StridedView& g, const StridedView& dw,
                              WinogradPadding padding, void* workspace) {
  const Sizes s(x, g);
  if (dw.numel() == 0) return;
  Scratch scratch(workspace);
  const StridedView x_lines = with_lines(x, scratch.floats(copy_size(x)));
  const StridedView g_lines = with_lines(g, scratch.floats(copy_size(g)));
  const int64_t longest = std::max(s.channels, s.outs);
  float* const zeros = scratch.floats(longest);
  std::memset(zeros, 0, static_cast<size_t>(longest) * 4);
  float* const m = scratch.floats(kPlaces * s.outs * s.channels);
  Tiles of_g = tiles_of(g_lines, s.down, s.across, kGradient, zeros);
  of_g.transposed = true;
  Tiles of_x = tiles_of(x_lines, s.down, s.across, kOperand, zeros);
  of_x.first_row = -padding.rows, of_x.first_column = -padding.columns;
  const GemmFill a = of_g.fill(), b = of_x.fill();
  const GemmHooks hooks{.a = &a, .b = &b};
  const Shape a_shape{kPlaces, s.outs, s.tiles}, b_shape{kPlaces, s.tiles, s.channels},
      c_shape{kPlaces, s.outs, s.channels};
  gemm({nullptr, kFloat32, a_shape, contiguous_strides(a_shape)},
       {nullptr, kFloat32, b_shape, contiguous_strides(b_shape)}, {m, kFloat32, c_shape, contiguous_strides(c_shape)},
       scratch.rest(), &hooks);
  parallel_chunks(s.outs, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      fns().weight_gradient(m + o * s.channels, s.outs * s.channels, s.channels, dw.as<float>() + o * 9 * s.channels);
  });
}

}  // namespace weft::kernels
