#include "compiler/cost/roofline.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

double seconds(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

// The row at `at`, interpolated between two measured rows, linearly in the logarithm of the column `by`.
template <class Row, size_t N>
Row row_at(const std::vector<Row>& rows, double Row::*by, double at, double Row::*const (&columns)[N]) {
  const auto above =
      std::lower_bound(rows.begin(), rows.end(), at, [&](const Row& r, double value) { return r.*by < value; });
  if (above == rows.end()) return rows.back();
  if (above == rows.begin()) return rows.front();
  const Row &a = above[-1], &b = *above;
  const double part = std::log(at / (a.*by)) / std::log(b.*by / (a.*by));
  Row row = a;
  for (double Row::*column : columns) row.*column = std::lerp(a.*column, b.*column, part);
  return row;
}

double memory_seconds(const Machine& m, const Cost& w) {
  if (m.memory_rates.empty()) return seconds(w.bytes, m.bytes);
  const MemoryRate rate = row_at(m.memory_rates, &MemoryRate::bytes, w.working_set > 0 ? w.working_set : w.bytes,
                                 {&MemoryRate::read, &MemoryRate::write, &MemoryRate::copy});
  const double written = std::min(w.written, w.bytes), read = w.bytes - written, copied = std::min(read, written);
  return seconds(2 * copied, rate.copy) + seconds(read - copied, rate.read) + seconds(written - copied, rate.write);
}

// The rate of products of this shape, as a share of the rate of large products.
double size_share(const Machine& m, const Cost& w, const ProductShape& s) {
  const std::vector<ProductShare>& shares = s.head > 0 ? m.attention_shares : m.product_shares;
  if (shares.empty() || (s.head <= 0 && s.m <= 0) || w.products <= 0) return 1;
  const double side = s.head > 0 ? s.head : std::min({s.m, s.n, w.products / (2 * s.count * s.m * s.n)});
  const ProductShare share = row_at(shares, &ProductShare::side, side, {&ProductShare::f32, &ProductShare::bits16});
  return itemsize(w.product_dtype) <= 2 ? share.bits16 : share.f32;
}

}  // namespace

double wave_share(const Machine& machine, const ProductShape& s) {
  if (machine.multiprocessors <= 0 || s.m <= 0) return 1;
  struct TileSize {
    double m, n, reached;
  };
  constexpr TileSize kTiles[] = {{128, 256, 1}, {256, 128, 1}, {128, 128, 0.95}, {128, 64, 0.8}, {64, 64, 0.65}};
  double best = 0;
  for (const TileSize& t : kTiles) {
    const double tiles = s.count * std::ceil(s.m / t.m) * std::ceil(s.n / t.n),
                 places = std::ceil(tiles / machine.multiprocessors) * machine.multiprocessors;
    best = std::max(best, t.reached * s.count * s.m * s.n / (places * t.m * t.n));
  }
  return best;
}

ResourceSeconds resource_seconds(const Machine& m, const Cost& w, const ProductShape& shape) {
  return {
      .memory = memory_seconds(m, w) / m.reached,
      .arithmetic = seconds(w.flops - w.products, m.flops) / m.reached,
      .products = seconds(w.products, m.products_of(w.product_dtype) * wave_share(m, shape) * size_share(m, w, shape)) /
                  m.reached};
}

double roofline_seconds(const Machine& m, const Cost& w, const ProductShape& shape) {
  const ResourceSeconds s = resource_seconds(m, w, shape);
  // A core that packs operands or stores results multiplies nothing meanwhile.
  if (m.shares_cores && w.products > 0) return std::max(s.memory, s.arithmetic) + s.products;
  return std::max({s.memory, s.arithmetic, s.products});
}

double launch_seconds(const Machine& m, const Cost& w, const ProductShape& shape) {
  return m.launch + roofline_seconds(m, w, shape);
}

double operations_for(const Machine& m, double bytes, double times) { return times * bytes / m.bytes * m.flops; }

std::vector<double> shares_after_speedup(const std::vector<double>& shares, const std::vector<double>& speedups) {
  std::vector<double> after;
  double all = 0;
  for (size_t k = 0; k < shares.size(); ++k) all += after.emplace_back(shares[k] / speedups[k]);
  for (double& s : after) s = all > 0 ? s / all : 0;
  return after;
}

}  // namespace weft
