// mix64: a 64-bit finaliser (splitmix64, Steele et al. 2014) for stateless random choices.
#pragma once
#include <cstdint>

namespace weft::data {

constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// An integer in [0, n), n > 0, from 64 random bits (multiply-shift; the bias is below n / 2^64).
constexpr uint64_t below(uint64_t random, uint64_t n) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random) * n) >> 64);
}

}  // namespace weft::data
