// Tests that ranges are sound: the result of an op on members of its operands' ranges is in the result's range.
#include "ops/attention/masks/mask_range.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "ops/attention/masks/mask_analysis.h"

namespace weft::internal {
namespace {

using kernels::Pw;

// A range and some of its members, made from values that share a stride, bits or nothing.
struct Sampled {
  MaskRange range;
  std::vector<int64_t> values;
};

int64_t fit(int64_t v, DType t) {
  return t == kInt64   ? v
         : t == kInt32 ? static_cast<int32_t>(v)
         : t == kInt16 ? static_cast<int16_t>(v)
         : t == kInt8  ? static_cast<int8_t>(v)
         : t == kUInt8 ? static_cast<uint8_t>(v)
                       : v & 1;
}

Sampled sample(std::mt19937_64& rng, DType t) {
  static constexpr int64_t kEdges[] = {0,
                                       1,
                                       -1,
                                       2,
                                       127,
                                       128,
                                       255,
                                       1 << 20,
                                       std::numeric_limits<int32_t>::max(),
                                       std::numeric_limits<int32_t>::min(),
                                       std::numeric_limits<int64_t>::max(),
                                       std::numeric_limits<int64_t>::min(),
                                       int64_t{1} << 40};
  int64_t base = fit(rng() % 3 ? static_cast<int64_t>(rng() % 2000) - 700 : kEdges[rng() % 13], t);
  Sampled s;
  const MaskRange all = MaskRange::any(t);
  switch (rng() % 4) {
    case 0:
      s.values = {base};
      s.range = MaskRange::of(base);
      return s;
    case 1: {  // an interval
      const int64_t width = 1 + rng() % 40;
      if (base > all.hi - width) base = all.hi - width;
      if (t == kBool) {
        s.values = {0, 1};
        s.range = MaskRange::between(0, 1);
        return s;
      }
      for (int64_t i = 0; i <= width; ++i) s.values.push_back(base + i);
      s.range = MaskRange::between(base, base + width);
      return s;
    }
    default: {  // joined from constants: the join itself must be sound
      const int64_t step = 1 + rng() % 20, n = 1 + rng() % 6;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t v =
            fit(static_cast<int64_t>(static_cast<uint64_t>(base) + static_cast<uint64_t>(i * step * (rng() % 3))), t);
        s.range = i ? range_join(s.range, MaskRange::of(v)) : MaskRange::of(v);
        s.values.push_back(v);
      }
      return s;
    }
  }
}

void put(int64_t v, DType t, unsigned char* to) {
  std::memset(to, 0, 8);
  std::memcpy(to, &v, static_cast<size_t>(itemsize(t)));  // the machine is little-endian
}
int64_t get(const unsigned char* from, DType t) {
  MaskInstr in;
  in.dtype = t;
  std::memcpy(in.value, from, 8);
  return in.integer();
}

TEST(MaskRange, EveryOpIsSound) {
  std::mt19937_64 rng(1);
  int64_t constants = 0, checked = 0;
  for (int trial = 0; trial < 60000; ++trial) {
    const Pw op = static_cast<Pw>(rng() % kernels::kNumPw);
    const DType types[] = {kInt64, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};
    const DType t = types[rng() % std::size(types)];
    const kernels::PwInfo& info = kernels::pointwise_info(op);
    const kernels::PwFn fn = kernels::pointwise_contiguous_fn(op, t);
    if (!fn || info.types == kernels::PwTypes::FLOAT) continue;
    const DType out_type = info.bool_result ? kBool : t;
    Sampled in[3];
    for (int k = 0; k < 3; ++k) in[k] = sample(rng, info.operands == 3 && k == 0 ? kBool : t);
    const bool same = info.operands == 2 && rng() % 8 == 0;
    if (same) in[1] = in[0];
    const MaskRange* args[3] = {&in[0].range, &in[info.operands > 1 ? 1 : 0].range,
                                &in[info.operands > 2 ? 2 : 0].range};
    const MaskRange r = range_of(op, t, out_type, args, same);
    constants += r.constant();
    for (int i = 0; i < 60; ++i) {
      unsigned char x[3][8], y[8] = {};
      const void* data[3];
      size_t pick[3];
      for (int k = 0; k < 3; ++k) {
        pick[k] = rng() % in[k].values.size();
        if (same && k == 1) pick[1] = pick[0];
        put(in[k].values[pick[k]], info.operands == 3 && k == 0 ? kBool : t, x[k]);
        data[k] = x[k];
      }
      if (fn(data, y, 1, 0)) continue;  // division by zero
      ++checked;
      ASSERT_TRUE(r.contains(get(y, out_type)))
          << info.name << " of " << to_string_view(t) << " " << in[0].values[pick[0]] << ", " << in[1].values[pick[1]]
          << " gave " << get(y, out_type) << " outside [" << r.lo << ", " << r.hi << "] step " << r.step << " rem "
          << r.rem << " known " << r.known;
    }
  }
  EXPECT_GT(checked, 1000000);
  EXPECT_GT(constants, 5000);
}

TEST(MaskRange, CastsAndJoinsAreSound) {
  std::mt19937_64 rng(2);
  const DType types[] = {kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};
  for (int trial = 0; trial < 20000; ++trial) {
    const DType from = types[rng() % std::size(types)], to = types[rng() % std::size(types)];
    const Sampled a = sample(rng, from), b = sample(rng, from);
    const MaskRange r = range_of_cast(from, to, a.range), j = range_join(a.range, b.range);
    for (int64_t v : a.values) {
      ASSERT_TRUE(a.range.contains(v));
      ASSERT_TRUE(r.contains(to == kBool ? v != 0 : fit(v, to))) << v;
      ASSERT_TRUE(j.contains(v)) << v;
    }
    for (int64_t v : b.values) ASSERT_TRUE(j.contains(v)) << v;
  }
}

TEST(MaskRange, KnowsWhatMasksNeed) {
  auto range = [](Pw op, MaskRange a, MaskRange b) {
    const MaskRange* args[3] = {&a, &b, &b};
    return range_of(op, kInt64, kernels::pointwise_info(op).bool_result ? kBool : kInt64, args, false);
  };
  const auto between = &MaskRange::between;
  EXPECT_TRUE(range(Pw::ge, between(128, 255), between(0, 128)).constant());
  EXPECT_EQ(range(Pw::remainder, between(130, 140), MaskRange::of(128)).lo, 2);  // one period: exact
  EXPECT_EQ(range(Pw::remainder, between(130, 140), MaskRange::of(128)).hi, 12);
  EXPECT_EQ(range(Pw::floor_divide, between(-5, 9), MaskRange::of(4)).lo, -2);
  const MaskRange even = range(Pw::mul, between(0, 100), MaskRange::of(2));
  const MaskRange odd = range(Pw::add, even, MaskRange::of(1));
  EXPECT_EQ(range(Pw::eq, even, odd).hi, 0);                                         // never equal
  EXPECT_EQ(range(Pw::bit_and, between(256, 511), MaskRange::of(0x100)).lo, 0x100);  // leading bits are common
}

TEST(MaskRange, BoundsOfLinesAreExact) {
  std::mt19937_64 rng(3);
  for (int64_t n : {1, 63, 64, 65, 1000}) {
    std::vector<int32_t> v(2 * n);
    for (auto& x : v) x = static_cast<int32_t>(rng() % 1000);
    for (int64_t stride : {1, 2}) {
      const LineBounds line(v.data(), kInt32, n, stride);
      for (int i = 0; i < 300; ++i) {
        int64_t lo = rng() % n, hi = rng() % n;
        if (lo > hi) std::swap(lo, hi);
        int64_t least = 1000, most = -1;
        for (int64_t k = lo; k <= hi; ++k) {
          least = std::min<int64_t>(least, v[k * stride]);
          most = std::max<int64_t>(most, v[k * stride]);
        }
        ASSERT_EQ(line.over(lo, hi).lo, least);
        ASSERT_EQ(line.over(lo, hi).hi, most);
      }
    }
  }
}

}  // namespace
}  // namespace weft::internal
