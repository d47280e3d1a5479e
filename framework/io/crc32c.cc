#include "framework/io/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace weft::io {
namespace {

// A word is a polynomial over GF(2) modulo the Castagnoli polynomial; its top bit is the coefficient of x^0.
constexpr uint32_t kPolynomial = 0x82F63B78, kOne = uint32_t{1} << 31;

constexpr uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (int i = 31; i >= 0; --i) {
    sum ^= b & -(a >> i & 1);
    b = (b >> 1) ^ (kPolynomial & -(b & 1));
  }
  return sum;
}

// Element k is x^(8·2^k): 2^k more zero bytes.
constexpr std::array<uint32_t, 63> kPowers = [] {
  std::array<uint32_t, 63> powers{};
  powers[0] = kOne >> 8;
  for (size_t k = 1; k < powers.size(); ++k) powers[k] = product(powers[k - 1], powers[k - 1]);
  return powers;
}();

// The word of bytes that n zero bytes follow.
uint32_t shifted(uint32_t word, int64_t n) {
  for (size_t k = 0; n > 0; ++k, n >>= 1)
    if (n & 1) word = product(kPowers[k], word);
  return word;
}

uint64_t load8(const std::byte* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

// The instruction takes three cycles and starts in each: three streams keep it busy.
constexpr int kStreamLog = 13;
constexpr size_t kStream = size_t{1} << kStreamLog;

// The word of bytes that follow others, whose word is `word`.
uint32_t extended(uint32_t word, std::span<const std::byte> bytes) {
  const std::byte* p = bytes.data();
  size_t n = bytes.size();
  for (; n >= 3 * kStream; p += 3 * kStream, n -= 3 * kStream) {
    uint64_t a = word, b = 0, c = 0;
    for (size_t i = 0; i < kStream; i += 8) {
      a = _mm_crc32_u64(a, load8(p + i));
      b = _mm_crc32_u64(b, load8(p + kStream + i));
      c = _mm_crc32_u64(c, load8(p + 2 * kStream + i));
    }
    const uint32_t two = product(kPowers[kStreamLog], static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
    word = product(kPowers[kStreamLog], two) ^ static_cast<uint32_t>(c);
  }
  uint64_t rest = word;
  for (; n >= 8; p += 8, n -= 8) rest = _mm_crc32_u64(rest, load8(p));
  word = static_cast<uint32_t>(rest);
  for (; n > 0; ++p, --n) word = _mm_crc32_u8(word, static_cast<uint8_t>(*p));
  return word;
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) { return ~extended(~uint32_t{0}, bytes); }

// Before B, the state is ~a, and for `b` it was ~0: they differ by a.
uint32_t crc32c_combine(uint32_t a, uint32_t b, int64_t bytes_b) { return shifted(a, bytes_b) ^ b; }

uint32_t crc32c_of_zeros(int64_t n) { return ~shifted(~uint32_t{0}, n); }

uint32_t crc32c_share(std::span<const std::byte> bytes, int64_t following) {
  return shifted(extended(0, bytes), following);
}

}  // namespace weft::io
