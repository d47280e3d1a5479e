// 64-bit hashing that gives the same numbers in every process: cache keys and plan hashes depend on it.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace weft {

/// Mixes the bits of a 64-bit number (the finaliser of MurmurHash3).
constexpr uint64_t hash_mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

/// Extends `seed`, the hash of a sequence, by `value`; order matters.
constexpr uint64_t hash_combine(uint64_t seed, uint64_t value) {
  return hash_mix(seed * 0x9e3779b97f4a7c15ULL + std::rotl(value, 23) + 0x165667b19e3779f9ULL) ^ value;
}

/// Hash of bytes, eight at a time.
inline uint64_t hash_bytes(const void* data, size_t n, uint64_t seed = 0) {
  const char* p = static_cast<const char*>(data);
  uint64_t h = hash_combine(seed, n);
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = hash_combine(h, word);
  }
  uint64_t tail = 0;
  if (n) std::memcpy(&tail, p, n);
  return n ? hash_combine(h, tail) : h;
}
inline uint64_t hash_text(std::string_view s, uint64_t seed = 0) { return hash_bytes(s.data(), s.size(), seed); }

}  // namespace weft
