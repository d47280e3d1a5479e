#include "ops/kernels/products/winograd.h"

#include <algorithm>
#include <cstring>

#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/products/gemm.h"
#include "ops/kernels/products/winograd_isa.h"
#include "ops/kernels/tables.h"

namespace weft::kernels {
namespace {

constexpr int kPlaces = 16;      // elements of a transformed tile
constexpr int64_t kBlock = 512;  // most tiles whose products are in memory at once
constexpr int64_t kGrain = 16;   // tiles of one pool task

const WinogradFns& fns() {
  static const WinogradFns& f = WEFT_SELECT(winograd_fns)();
  return f;
}

int64_t aligned(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

// Parts of the scratch memory.
class WinogradScratch {
 public:
  explicit WinogradScratch(void* base) : at_(static_cast<char*>(base)) {}
  float* floats(int64_t n) {
    char* const p = at_;
    at_ += aligned(n * 4);
    return reinterpret_cast<float*>(p);
  }
  void* rest() const { return at_; }

 private:
  char* at_;
};

// The stride from one of 16 matrices to the next. A power of two would put the lines of a tile into the same set of a
// cache.
int64_t stride_of(int64_t rows, int64_t columns) { return (rows * columns + 15) / 16 * 16 + 16; }

// The tiles of an image [N, H, W, C] with contiguous channels; outside there are zeros.
struct ImageTiles {
  const StridedView& image;
  int64_t first_row, first_column;  // position of the first tile
  int64_t down, across;             // tiles of an image
  const float* zeros;

  /// The channels at the size x size elements of a tile.
  void lines(int64_t tile, int size, const float** out) const {
    const int64_t n = tile / (down * across), top = first_row + tile / across % down * 2,
                  left = first_column + tile % across * 2;
    const float* const base = image.as<float>() + n * image.strides[0];
    for (int64_t y = top; y < top + size; ++y)
      for (int64_t x = left; x < left + size; ++x) {
        const bool inside = y >= 0 && y < image.shape[1] && x >= 0 && x < image.shape[2];
        *out++ = inside ? base + y * image.strides[1] + x * image.strides[2] : zeros;
      }
  }
  /// Transforms `count` tiles from `begin` on, to matrices(out, count, channels).
  void transform(int64_t begin, int64_t count, bool gradient, float* out) const {
    const int64_t channels = image.shape[3];
    parallel_chunks(count, kGrain, [&](int64_t from, int64_t to) {
      const float* all[kPlaces];
      for (int64_t i = from; i < to; ++i) {
        lines(begin + i, gradient ? 2 : 4, all);
        (gradient ? fns().gradient : fns().operand)(all, channels, out + i * channels, stride_of(count, channels));
      }
    });
  }
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

const float* zero_line(WinogradScratch& scratch, int64_t n) {
  float* const line = scratch.floats(n);
  std::memset(line, 0, static_cast<size_t>(n) * 4);
  return line;
}

StridedView matrices(float* data, int64_t rows, int64_t columns) {
  return {data, kFloat32, {kPlaces, rows, columns}, {stride_of(rows, columns), columns, 1}};
}

// The transformed kernels: matrices(u, C, O).
void transform(const StridedView& w, bool flip, float* u) {
  constexpr int64_t kChannels = 16, kOuts = 64;
  const int64_t outs = w.shape[0], channels = w.shape[1];
  parallel_chunks(channels, kChannels, [&](int64_t begin, int64_t end) {
    float lines[9][kOuts];
    const float* at[9];
    for (int k = 0; k < 9; ++k) at[k] = lines[flip ? 8 - k : k];
    // Channel by channel inside: neighbouring ones share cache lines.
    for (int64_t o = 0; o < outs; o += kOuts)
      for (int64_t c = begin; c < end; ++c) {
        const int64_t n = std::min(kOuts, outs - o);
        const float* const from = w.as<float>() + c * w.strides[1] + o * w.strides[0];
        for (int64_t i = 0; i < n; ++i)
          for (int k = 0; k < 9; ++k)
            lines[k][i] = from[i * w.strides[0] + k / 3 * w.strides[2] + k % 3 * w.strides[3]];
        fns().weight(at, n, u + c * outs + o, stride_of(channels, outs));
      }
  });
}

struct WinogradSizes {
  WinogradSizes(const StridedView& x, const StridedView& y)
      : channels(x.shape[3]),
        outs(y.shape[3]),
        down((y.shape[1] + 1) / 2),
        across((y.shape[2] + 1) / 2),
        tiles(y.shape[0] * down * across),
        blocks((tiles + kBlock - 1) / kBlock),
        block((tiles + std::max<int64_t>(blocks, 1) - 1) / std::max<int64_t>(blocks, 1)) {}
  /// The first tile of block i. Blocks are about equal: products of few rows add in another order.
  int64_t begin(int64_t i) const { return tiles * i / blocks; }
  /// The most bytes that a block needs: a smaller product may need more.
  template <class F>
  int64_t most(const F& bytes) const {
    return block > 1 ? std::max(bytes(block), bytes(block - 1)) : bytes(block);
  }
  int64_t channels, outs, down, across, tiles, blocks;
  int64_t block;  // tiles of the largest block
};

}  // namespace

int64_t winograd_workspace(const StridedView& x, const StridedView& y) {
  const WinogradSizes s(x, y);
  return aligned(copy_size(x) * 4) + aligned(s.channels * 4) + aligned(kPlaces * stride_of(s.outs, s.channels) * 4) +
         aligned(kPlaces * stride_of(s.block, s.channels) * 4) + aligned(kPlaces * stride_of(s.block, s.outs) * 4) +
         s.most([&](int64_t count) { return gemm_workspace(kFloat32, kFloat32, kPlaces, count, s.outs, s.channels); });
}

void winograd(const StridedView& x, const StridedView& w, const StridedView& y, WinogradPadding padding, bool flip,
              void* workspace) {
  const WinogradSizes s(x, y);
  if (y.numel() == 0) return;
  WinogradScratch scratch(workspace);
  const StridedView lines = with_lines(x, scratch.floats(copy_size(x)));
  const ImageTiles tiles{lines, -padding.rows, -padding.columns, s.down, s.across, zero_line(scratch, s.channels)};
  float* const u = scratch.floats(kPlaces * stride_of(s.channels, s.outs));
  float* const v = scratch.floats(kPlaces * stride_of(s.block, s.channels));
  float* const m = scratch.floats(kPlaces * stride_of(s.block, s.outs));
  transform(w, flip, u);
  for (int64_t k = 0; k < s.blocks; ++k) {
    const int64_t first = s.begin(k), count = s.begin(k + 1) - first;
    tiles.transform(first, count, /*gradient=*/false, v);
    gemm(matrices(v, count, s.channels), matrices(u, s.channels, s.outs), matrices(m, count, s.outs), scratch.rest());
    parallel_chunks(count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t tile = first + i, n = tile / (s.down * s.across);
        const int64_t row = tile / s.across % s.down * 2, column = tile % s.across * 2;
        float* const out = y.as<float>() + ((n * y.shape[1] + row) * y.shape[2] + column) * s.outs;
        // A result outside the image is written to the place of a result inside, which is written after it.
        const int64_t right = column + 1 < y.shape[2] ? s.outs : 0,
                      below = row + 1 < y.shape[1] ? y.shape[2] * s.outs : 0;
        float* const results[] = {out, out + right, out + below, out + below + right};
        fns().output(m + i * s.outs, stride_of(count, s.outs), s.outs, results);
      }
    });
  }
}

int64_t winograd_weight_gradient_workspace(const StridedView& x, const StridedView& g) {
  const WinogradSizes s(x, g);
  return aligned(copy_size(x) * 4) + aligned(copy_size(g) * 4) + aligned(std::max(s.channels, s.outs) * 4) +
         aligned(kPlaces * stride_of(s.block, s.channels) * 4) + aligned(kPlaces * stride_of(s.block, s.outs) * 4) +
         aligned(kPlaces * stride_of(s.outs, s.channels) * 4) +
         s.most([&](int64_t count) { return gemm_workspace(kFloat32, kFloat32, kPlaces, s.outs, s.channels, count); });
}

void winograd_weight_gradient(const StridedView& x, const StridedView& g, const StridedView& dw,
                              WinogradPadding padding, void* workspace) {
  const WinogradSizes s(x, g);
  if (dw.numel() == 0) return;
  WinogradScratch scratch(workspace);
  const StridedView x_lines = with_lines(x, scratch.floats(copy_size(x)));
  const StridedView g_lines = with_lines(g, scratch.floats(copy_size(g)));
  const float* const zeros = zero_line(scratch, std::max(s.channels, s.outs));
  const ImageTiles of_x{x_lines, -padding.rows, -padding.columns, s.down, s.across, zeros};
  const ImageTiles of_g{g_lines, 0, 0, s.down, s.across, zeros};
  float* const v = scratch.floats(kPlaces * stride_of(s.block, s.channels));
  float* const d = scratch.floats(kPlaces * stride_of(s.block, s.outs));
  float* const m = scratch.floats(kPlaces * stride_of(s.outs, s.channels));
  if (s.tiles == 0) std::memset(m, 0, static_cast<size_t>(kPlaces * stride_of(s.outs, s.channels)) * 4);
  for (int64_t k = 0; k < s.blocks; ++k) {
    const int64_t first = s.begin(k), count = s.begin(k + 1) - first;
    of_x.transform(first, count, /*gradient=*/false, v);
    of_g.transform(first, count, /*gradient=*/true, d);
    StridedView a = matrices(d, count, s.outs);  // transposed
    std::swap(a.shape[1], a.shape[2]);
    std::swap(a.strides[1], a.strides[2]);
    const GemmHooks hooks{.add = k > 0};
    gemm(a, matrices(v, count, s.channels), matrices(m, s.outs, s.channels), scratch.rest(), &hooks);
  }
  parallel_chunks(s.outs, kGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kChannels = 64;
    float lines[9 * kChannels];
    for (int64_t o = begin; o < end; ++o)
      for (int64_t c = 0; c < s.channels; c += kChannels) {
        const int64_t n = std::min(kChannels, s.channels - c);
        fns().weight_gradient(m + o * s.channels + c, stride_of(s.outs, s.channels), n, lines);
        float* const out = dw.as<float>() + (o * s.channels + c) * 9;
        for (int64_t i = 0; i < n; ++i)
          for (int64_t k = 0; k < 9; ++k) out[i * 9 + k] = lines[k * n + i];
      }
  });
}

}  // namespace weft::kernels
