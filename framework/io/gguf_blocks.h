// Formats of tensors in GGUF files: blocks of elements with common scales. Format: ggml's ggml-quants.c.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::io {

/// The value in the bytes at any address.
template <class T>
T value_at(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// One of ggml's formats.
struct GgufFormat {
  uint32_t number;      // in files
  const char* name;     // "Q4_K"
  int64_t block;        // elements of a block
  int64_t block_bytes;  // bytes of a block
  /// The f32 values of one block. Null: Weft does not read the format.
  void (*dequantise)(const std::byte* block, float* out) = nullptr;
};

/// The format with this number, or null.
const GgufFormat* gguf_format(uint32_t number);

inline constexpr uint32_t kGgufF32 = 0, kGgufF16 = 1, kGgufQ8_0 = 8, kGgufBF16 = 30;

/// Elements [begin, end) of blocks as f32. `format` has `dequantise`.
void dequantise(const GgufFormat& format, const std::byte* blocks, int64_t begin, int64_t end, float* out);

/// Blocks of Q8_0 of `count` elements, a multiple of 32, with ggml's rounding. Needs finite elements.
void quantise_q8_0(const float* x, int64_t count, std::byte* blocks);

}  // namespace weft::io
