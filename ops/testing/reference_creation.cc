// Constants, ranges and random bits.
#include <cmath>

#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

Real number(const Attrs& attrs, std::string_view key) {
  const AttrValue* v = attrs.find(key);
  return std::holds_alternative<double>(*v) ? static_cast<Real>(std::get<double>(*v)) : static_cast<Real>(attrs.i(key));
}

std::vector<RefResult> constant(const RefCall& c) {
  return {{{rounded(number(c.attrs, "value"), c.out[0].dtype)}, {}}};
}

// Computed in f64: two roundings, then one to the dtype.
std::vector<RefResult> iota(const RefCall& c) {
  const Real start = number(c.attrs, "start"), step = number(c.attrs, "step");
  RefResult r;
  for (int64_t i = 0; i < c.out[0].shape[0]; ++i) {
    const Real v = start + static_cast<Real>(i) * step;
    r.v.push_back(is_floating(c.out[0].dtype) ? v : rounded(v, c.out[0].dtype));
    const Real error = (std::fabs(start) + 2 * std::fabs(static_cast<Real>(i) * step)) * unit_roundoff(kFloat64);
    r.bound.push_back(is_floating(c.out[0].dtype) ? rounding_bound(v, error, kFloat64, c.out[0].dtype) : 0);
  }
  return {r};
}

// Philox4x32-10 (Salmon et al. 2011): element i is word i % 4 of the block with key {seed} and counter {i / 4 in two
// words, op_id, low word of step}. random_bits_at: i is the position in the whole.
std::vector<RefResult> random_bits(const RefCall& c) {
  const auto seed = static_cast<uint64_t>(static_cast<int64_t>(c.in[0].v[0]));
  const auto step = static_cast<uint64_t>(static_cast<int64_t>(c.in[1].v[0]));
  const bool shard = c.attrs.has("strides");
  const Shape own = contiguous_strides(c.out[0].shape);
  RefResult r;
  for (int64_t k = 0; k < c.out[0].shape.numel(); ++k) {
    int64_t i = k;
    if (shard) {
      const Shape& base = c.in[2].type.shape;
      const Shape lines = contiguous_strides(base);
      int64_t from = 0;
      for (int d = 0; d < base.size(); ++d)
        if (base[d] > 1) from += k / own[d] % c.out[0].shape[d] * lines[d];
      i = static_cast<int64_t>(c.in[2].v[static_cast<size_t>(from)]);
      for (int d = 0; d < own.size(); ++d) i += k / own[d] % c.out[0].shape[d] * c.attrs.ints("strides")[d];
    }
    const uint64_t block = static_cast<uint64_t>(i) / 4;
    uint32_t x[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     static_cast<uint32_t>(c.attrs.i("op_id")), static_cast<uint32_t>(step)};
    uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53} * x[0], b = uint64_t{0xCD9E8D57} * x[2];
      const uint32_t y[4] = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ key[0], static_cast<uint32_t>(b),
                             static_cast<uint32_t>(a >> 32) ^ x[3] ^ key[1], static_cast<uint32_t>(a)};
      for (int j = 0; j < 4; ++j) x[j] = y[j];
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    r.v.push_back(static_cast<Real>(static_cast<int32_t>(x[i % 4])));
  }
  return {r};
}

}  // namespace

std::span<const RefRow> creation_references() {
  static const RefRow rows[] = {
      {"constant", constant}, {"iota", iota}, {"random_bits", random_bits}, {"random_bits_at", random_bits}};
  return rows;
}

}  // namespace weft::testing
