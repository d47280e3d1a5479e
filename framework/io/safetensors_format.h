// The format of safetensors files, for the files of this folder that read and write them.
#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

#include "framework/tensor/dtype.h"

namespace weft::io {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

/// The names of dtypes, by DType.
inline constexpr std::string_view kNames[] = {"F32", "F64", "BF16", "F16",  "I64",     "I32",
                                              "I16", "I8",  "U8",   "BOOL", "F8_E4M3", "F8_E5M2"};
static_assert(std::size(kNames) == kNumDTypes);
inline constexpr int64_t kMaxHeader = 100'000'000;  // limit of the reference reader
inline constexpr std::string_view kCrcKey = "crc32c.", kXxhKey = "xxh3.";
inline constexpr std::string_view kFile = ".safetensors";

inline constexpr int64_t kBlock = 4 << 20;  // bytes of a tensor with one CRC
constexpr int64_t blocks_of(int64_t nbytes) { return nbytes / kBlock + (nbytes % kBlock != 0); }

}  // namespace weft::io
