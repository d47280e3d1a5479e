// For tests: random mask expressions by seed, over indices, numbers and captured tables.
#pragma once
#include <random>

#include "ops/attention/mods/mod.h"
#include "ops/core/core.h"

namespace weft::testing {

/// A mask whose expression depends on the seed. Tables are as long as the lengths; divisors are not zero.
class RandomMask {
 public:
  RandomMask(uint64_t seed, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len)
      : seed_(seed), longest_(std::max(q_len, kv_len)) {
    std::mt19937_64 rng(seed);
    // Sorted document ids, small random numbers, a flag, a table by head.
    std::vector<int64_t> doc(longest_), noise(longest_);
    std::vector<int32_t> by_head(heads * longest_);
    std::vector<uint8_t> flag(longest_);
    int64_t d = 0;
    const uint64_t rare = 1 + rng() % 200;
    for (int64_t i = 0; i < longest_; ++i) {
      d += rng() % rare == 0;
      doc[i] = d;
      noise[i] = static_cast<int64_t>(rng() % 7);
      flag[i] = rng() % 3 != 0;
    }
    for (auto& v : by_head) v = static_cast<int32_t>(rng() % 50) - 10;
    doc_ = Tensor::from_vector<int64_t>(doc, {longest_});
    noise_ = Tensor::from_vector<int64_t>(noise, {longest_}).to(kInt32);
    flag_ = Tensor::from_vector<uint8_t>(flag, {longest_}).to(kBool);
    by_head_ = Tensor::from_vector<int32_t>(by_head, {heads, longest_});
    std::vector<int64_t> lengths(batch);
    for (auto& v : lengths) v = static_cast<int64_t>(rng() % (longest_ + 1));
    lengths_ = Tensor::from_vector<int64_t>(lengths, {batch});
    // Strided: a column of a wider table.
    wide_ =
        Tensor::from_vector<int64_t>(noise, {longest_}).reshape({longest_, 1}).expand({longest_, 2}).transpose(0, 1);
  }

  MaskMod mask() const {
    return [*this](Index b, Index h, Index q, Index kv) {
      std::mt19937_64 rng(seed_ * 7919 + 13);
      return truth(rng, 3, b, h, q, kv);
    };
  }

 private:
  using Rng = std::mt19937_64;
  static int64_t pick(Rng& rng, int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); }

  // A negative number does not fit u8.
  static Tensor with_sign(const Tensor& x) { return x.dtype() == kUInt8 ? cast(x, kInt32) : x; }

  Tensor number(Rng& rng, int depth, const Index& b, const Index& h, const Index& q, const Index& kv) const {
    if (depth <= 0) {
      switch (pick(rng, 10)) {
        case 0:
          return doc_[q];
        case 1:
          return doc_[kv];
        case 2:
          return noise_[pick(rng, 2) ? q : kv];
        case 3:
          return by_head_[h][pick(rng, 2) ? q : kv];
        case 4:
          return lengths_[b];
        case 5:
          return wide_[1][pick(rng, 2) ? q : kv];
        case 6:
        case 7:
          return q;
        default:
          return kv;
      }
    }
    const Tensor x = number(rng, depth - 1 - pick(rng, 2), b, h, q, kv);
    static constexpr int64_t kNumbers[] = {1, 2, 3, 5, 7, 16, 64, 100, 128, 200, 255};
    const int64_t c = kNumbers[pick(rng, 11)];
    switch (pick(rng, 18)) {
      case 0:
        return x + c;
      case 1:
        return x - c;
      case 2:
        return with_sign(x) * (c % 9 - 3);
      case 3:
        return floor_divide(x, c);
      case 4:
        return remainder(x, c);
      case 5:
        return minimum(x, c);
      case 6:
        return maximum(x, c);
      case 7:
        return abs(x - c);
      case 8:
        return bit_and(x, c);
      case 9:
        return bit_xor(x, number(rng, depth - 2, b, h, q, kv));
      case 10:
        return shift_right(x, c % 6);
      case 11:
        return bit_or(x, c);
      case 12:
        return where(truth(rng, depth - 2, b, h, q, kv), x, c);
      case 13:
        return x + number(rng, depth - 2, b, h, q, kv);
      case 14:
        return cast(x, pick(rng, 2) ? kInt32 : kUInt8);
      case 15:
        return remainder(with_sign(x), -c);
      case 16:
        return shift_left(x, c % 5);
      default:
        return x - number(rng, depth - 2, b, h, q, kv);
    }
  }

  Tensor truth(Rng& rng, int depth, const Index& b, const Index& h, const Index& q, const Index& kv) const {
    if (depth > 0) {
      switch (pick(rng, 6)) {
        case 0:
          return logical_not(truth(rng, depth - 1, b, h, q, kv));
        case 1:
        case 2:
          return truth(rng, depth - 1, b, h, q, kv) & truth(rng, depth - 1, b, h, q, kv);
        case 3:
          return truth(rng, depth - 1, b, h, q, kv) | truth(rng, depth - 1, b, h, q, kv);
        case 4:
          return logical_xor(truth(rng, depth - 1, b, h, q, kv), truth(rng, depth - 2, b, h, q, kv));
        default:
          break;
      }
    }
    if (pick(rng, 12) == 0) return flag_[pick(rng, 2) ? q : kv];
    if (pick(rng, 3) == 0) return q >= kv;
    const Tensor x = number(rng, depth, b, h, q, kv), y = number(rng, depth - 1, b, h, q, kv);
    switch (pick(rng, 8)) {
      case 0:
        return x == y;
      case 1:
        return x != y;
      case 2:
        return x < y;
      case 3:
        return x <= y;
      case 4:
        return x > y;
      case 5:
        return x >= pick(rng, 100);
      case 6:
        return x * 0.5 < y;
      default:
        return remainder(x, 3 + pick(rng, 9)) == pick(rng, 4);
    }
  }

  uint64_t seed_;
  int64_t longest_;
  Tensor doc_, noise_, flag_, by_head_, lengths_, wide_;
};

}  // namespace weft::testing
