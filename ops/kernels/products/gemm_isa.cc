// Products of f32 for one instruction set (WEFT_ISA_NS): a block of kMr rows and two vectors of columns stays in
// registers; every sum is one chain of fused multiply-adds over k. bf16 and f16 are converted to f32 when panels are
// packed. A panel stores element k of all its lines, then the next k.
#include "ops/kernels/products/gemm_kernel.h"

namespace weft::kernels::WEFT_ISA_NS {
namespace {
#include "ops/kernels/simd.inc"

constexpr int kMr = kF == 16 ? 14 : 6, kNr = 2 * kF, kKc = 512;

W_FN VF spread(float x) { return x - VF{}; }
W_FN i64 least(i64 a, i64 b) { return a < b ? a : b; }

// ---- packing ----

// The first `count` <= kF elements as f32, then zeros.
template <class M>
W_FN VF load_some(const typename M::E* from, i64 count) {
  if (count >= kF) return M::get(from);
#if W_BYTES == 64
  const unsigned mask = count <= 0 ? 0 : (1u << count) - 1;
  if constexpr (sizeof(typename M::E) == 4) return __builtin_ia32_loadups512_mask(from, VF{}, mask);
#endif
  alignas(64) typename M::E t[kF] = {};
  for (i64 i = 0; i < count; ++i) t[i] = from[i];
  return M::get(t);
}

// Stores the first kCount lanes, for 0 < kCount <= kF.
template <int kCount>
W_FN void store_some(float* to, VF v) {
  if constexpr (kCount == kF) {
    store(to, v);
  } else {
#if W_BYTES == 64
    __builtin_ia32_storeups512_mask(to, v, (1u << kCount) - 1);
#else
    __builtin_memcpy(to, &v, kCount * 4);
#endif
  }
}

// Stores to an aligned line, bypassing the caches.
W_FN void store_past(float* to, VF v) {
#if W_BYTES == 64
  __builtin_ia32_movntps512(to, v);
#elif W_BYTES == 32
  __builtin_ia32_movntps256(to, v);
#else
  __builtin_ia32_movntps(to, v);
#endif
}

template <class M>
W_FN void load_strided(const GemmPack& p, i64 line, i64 k, VF (&r)[kF]) {
  const typename M::E* from = static_cast<const typename M::E*>(p.from) + line * p.line_stride + k * p.k_stride;
  const i64 lines = p.lines - line, left = p.k - k;
  alignas(64) typename M::E t[kF];
  for (int i = 0; i < kF; ++i) {
    for (int j = 0; j < kF; ++j) t[j] = i < lines && j < left ? from[i * p.line_stride + j * p.k_stride] : 0;
    r[i] = M::get(t);
  }
}

// Packs kW lines from `line` on, k to k + kF: a panel of kW lines, split into vectors of them.
template <class M, int kW>
W_FN void pack_across(const GemmPack& p, i64 line, i64 k, float* to) {
  const typename M::E* from = static_cast<const typename M::E*>(p.from) + line * p.line_stride + k;
  const i64 count = least(kF, p.k - k);
  for (int w = 0; w < kW; w += kF) {
    const i64 lines = least(kW - w < kF ? kW - w : kF, p.lines - line - w);
    VF r[kF];
    if (p.k_stride != 1) {
      load_strided<M>(p, line + w, k, r);
    } else if (lines >= (kW < kF ? kW : kF) && count == kF) {
#pragma GCC unroll 16
      for (int i = 0; i < kF; ++i) r[i] = i < kW ? M::get(from + (w + i) * p.line_stride) : VF{};
    } else {
      for (int i = 0; i < kF; ++i) r[i] = i < lines ? load_some<M>(from + (w + i) * p.line_stride, count) : VF{};
    }
    swap_lanes<1>(r);
    constexpr int kRest = kW % kF ? kW % kF : kF;
    float* at = to + w;
    if (count == kF) {
#pragma GCC unroll 16
      for (int i = 0; i < kF; ++i) kW - w >= kF ? store(at + i * kW, r[i]) : store_some<kRest>(at + i * kW, r[i]);
    } else {
      for (int i = 0; i < count; ++i) kW - w >= kF ? store(at + i * kW, r[i]) : store_some<kRest>(at + i * kW, r[i]);
    }
  }
}

template <class M, int kW>
void pack(const GemmPack& p) {
  const i64 panels = (p.lines + kW - 1) / kW;
  auto at = [&](i64 panel, i64 k) {
    return reinterpret_cast<float*>(static_cast<char*>(p.to) + panel * p.panel_stride) + k * kW;
  };
  if (p.line_stride == 1 && p.k_stride != 1) {
    constexpr i64 kTogether = 16;  // consecutive k of one panel: few streams at a time
    constexpr int kRest = kW % kF ? kW % kF : kF;
    for (i64 first = 0; first < p.k; first += kTogether)
      for (i64 n = 0; n < panels; ++n) {
        const typename M::E* from = static_cast<const typename M::E*>(p.from) + first * p.k_stride + n * kW;
        float* to = at(n, first);
        const i64 lines = p.lines - n * kW;
        for (i64 k = first; k < least(p.k, first + kTogether); ++k, from += p.k_stride, to += kW) {
#pragma GCC unroll 8
          for (int w = 0; w < kW; w += kF) {
            // May read beyond the panel's own lines while there are lines; they are not stored.
            const VF v = load_some<M>(from + w, lines - w);
            kW - w >= kF ? store(to + w, v) : store_some<kRest>(to + w, v);
          }
        }
      }
    return;
  }
  for (i64 n = 0; n < panels; ++n)
    for (i64 k = 0; k < p.k; k += kF) pack_across<M, kW>(p, n * kW, k, at(n, k));
}

template <int kW>
void pack_any(const GemmPack& p) {
  p.type == PanelType::f32 ? pack<MF32, kW>(p) : p.type == PanelType::bf16 ? pack<MBF16, kW>(p) : pack<MF16, kW>(p);
}

// ---- the product ----

template <class M>
W_FN void write(const VF (&sums)[2], void* row, i64 col, i64 cols) {
  typename M::E* to = static_cast<typename M::E*>(row) + col;
  for (int v = 0; v < 2; ++v) {
    if (cols >= (v + 1) * kF) {
      M::put(to + v * kF, sums[v]);
    } else if (cols > v * kF) {
      typename M::E t[kF];
      M::put(t, sums[v]);
      for (i64 i = 0; i < cols - v * kF; ++i) to[v * kF + i] = t[i];
    }
  }
}

// Prefetches the memory to be touched, two lines per step.
struct Prefetcher {
  const GemmTouch *now, *end;
  const char *at = nullptr, *row = nullptr;
  i64 left = 0;

  W_INLINE void start() {
    if (now == end) return;
    at = row = now->at;
    left = now->rows;
  }
  W_INLINE explicit Prefetcher(const GemmBlock& g) : now(g.touches), end(g.touches + g.num_touches) { start(); }
  W_INLINE void step() {
    if (now == end) return;
    __builtin_prefetch(at, 0, 2);
    __builtin_prefetch(at + 64, 0, 2);
    at += 128;
    if (at < row + now->bytes) return;
    at = row += now->line;
    if (--left > 0) return;
    ++now;
    start();
  }
};

// kR rows and kV vectors of columns. kPacked: a is a panel, otherwise rows in memory. kTouch: `prefetcher` continues.
template <int kR, int kV, bool kPacked, bool kTouch = false>
void micro(const GemmBlock& g, const float* a, const float* b, i64 row, i64 col, Prefetcher* prefetcher) {
  VF sums[kR][kV];
  if (g.from) {
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) sums[r][v] = load<VF>(g.from + (row + r) * g.from_ld + col + v * kF);
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) sums[r][v] = VF{};
  }
  // Three rows per base pointer, so that addresses fit the registers.
  const i64 line = g.a_line / 4;
  const float* base[(kR + 2) / 3];
#pragma GCC unroll 8
  for (int i = 0; i < (kR + 2) / 3; ++i) base[i] = a + 3 * i * line;
  // Prefetches the next rows in memory to the second-level cache: they are too many streams for the hardware to
  // predict.
  const bool fetch = !kPacked && col == 0 && row + kMr < g.m;
  [[maybe_unused]] Prefetcher next = *prefetcher;
  for (i64 k = g.k; k > 0; --k, a += kMr, b += kNr) {
    if constexpr (kTouch)
      if (k % 4 == 0) next.step();
    if (!kPacked && fetch && k % 16 == 0) {
#pragma GCC unroll 16
      for (int r = 0; r < kR; ++r) __builtin_prefetch(base[r / 3] + (r % 3 + kMr) * line, 0, 2);
    }
    VF x[kV];
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) x[v] = load<VF>(b + v * kF);
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r) {
      const VF y = spread(kPacked ? a[r] : base[r / 3][r % 3 * line]);
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) sums[r][v] = w_fma(y, x[v], sums[r][v]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < (kR + 2) / 3; ++i) ++base[i];
  }
  if constexpr (kTouch) *prefetcher = next;
  const i64 cols = g.to_whole ? kNr : g.n - col;
  const i64 size = g.to_type == PanelType::f32 ? 4 : 2;
  char* to = static_cast<char*>(g.to) + row * g.to_ld * size;
  if (g.to_type == PanelType::f32 && cols >= kV * kF) {
    float* p = static_cast<float*>(g.to) + row * g.to_ld + col;
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) {
        float* at = p + r * g.to_ld + v * kF;
        g.stream ? store_past(at, sums[r][v]) : store(at, sums[r][v]);
      }
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kR; ++r, to += g.to_ld * size) {
    const VF line[2] = {sums[r][0], kV > 1 ? sums[r][kV - 1] : VF{}};
    const i64 n = least(cols, kV * kF);
    switch (g.to_type) {
      case PanelType::f32:
        write<MF32>(line, to, col, n);
        break;
      case PanelType::bf16:
        write<MBF16>(line, to, col, n);
        break;
      case PanelType::f16:
        write<MF16>(line, to, col, n);
    }
  }
}

typedef void (*Micro)(const GemmBlock&, const float*, const float*, i64, i64, Prefetcher*);
template <int kR>
struct MicroTable : MicroTable<kR - 1> {
  constexpr MicroTable() {
    this->fn[0][kR][0] = &micro<kR, 1, false>;
    this->fn[0][kR][1] = &micro<kR, 2, false>;
    this->fn[1][kR][0] = &micro<kR, 1, true>;
    this->fn[1][kR][1] = &micro<kR, 2, true>;
  }
};
template <>
struct MicroTable<0> {
  Micro fn[2][kMr + 1][2] = {};
};
constexpr MicroTable<kMr> kMicro;

void run(const GemmBlock& g) {
  Prefetcher prefetcher(g);
  for (i64 col = 0; col < g.n; col += kNr) {
    const float* b = reinterpret_cast<const float*>(static_cast<const char*>(g.b) + col / kNr * g.b_stride);
    const bool wide = g.n - col > kF;
    const i64 panel = g.a_line ? g.a_line * kMr : g.a_stride;
    for (i64 row = 0; row < g.m; row += kMr) {
      const float* a = reinterpret_cast<const float*>(static_cast<const char*>(g.a) + row / kMr * panel);
      const i64 rows = least(kMr, g.m - row);
      if (prefetcher.now != prefetcher.end && g.a_line == 0 && wide && rows == kMr) {
        micro<kMr, 2, true, true>(g, a, b, row, col, &prefetcher);
      } else {
        kMicro.fn[g.a_line == 0][rows][wide](g, a, b, row, col, &prefetcher);
      }
    }
  }
  if (g.stream) __builtin_ia32_sfence();
}

constexpr GemmKernel kKernel = {kMr, kNr, 1, kKc, 4, 1, 1, PanelType::f32, kMostFewRows, &pack_any<kMr>, &pack_any<kNr>,
                                &run};

}  // namespace

const GemmKernel& f32_gemm_kernel() { return kKernel; }

}  // namespace weft::kernels::WEFT_ISA_NS
