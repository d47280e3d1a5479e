// Damaged safetensors files: each is read in full or refused.
#include <gtest/gtest.h>

#include <cstring>

#include "framework/base/error.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "framework/io/safetensors.h"
#include "framework/testing/fuzz.h"

namespace weft::io {
namespace {

using weft::testing::FuzzFile;
using weft::testing::FuzzRandom;

std::string path_of(const char* name) { return ::testing::TempDir() + "/" + name; }

enum class Checksums : uint8_t { kNone, kCrc, kXxh3 };

std::string seed_file(Checksums checksums) {
  const std::string path = path_of("fuzz_seed.safetensors");
  float x[6] = {1, 2, 3, 4, 5, 6};
  int64_t ids[2] = {7, 8};
  auto view = [](const char* name, void* data, DType t, const Shape& s) {
    return NamedView{name, {data, t, s, contiguous_strides(s)}};
  };
  std::vector<NamedView> tensors = {view("a.weight", x, kFloat32, {2, 3}), view("b", ids, kInt64, {2}),
                                    view("c", x, kBFloat16, {1, 2, 1}), view("scalar", x, kUInt8, {})};
  write_safetensors(path, tensors, {{"format", "pt"}});
  std::string s = read_file(path);
  // Without their key the checksums are ordinary metadata, so that damaged data is read.
  if (checksums == Checksums::kNone)
    for (size_t at; (at = s.find("crc32c.")) != s.npos;) s[at] = 'y';
  if (checksums == Checksums::kXxh3) {
    uint64_t length = 0;
    std::memcpy(&length, s.data(), 8);
    std::string header = s.substr(8, length);
    const SafetensorsFile file(path);
    for (const TensorInfo& t : file.tensors()) {
      const std::string key = str_cat("crc32c.", t.name, "\":\"");
      header.replace(header.find(key), key.size() + 8,
                     str_cat("xxh3.", t.name, "\":\"", hex64(checksum(file.bytes(t.name)))));
    }
    const std::string data = s.substr(8 + length);
    length = header.size();
    s = std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
  }
  return s;
}

/// Opens the file and touches every byte of every tensor.
void read_all(const std::string& path, int64_t size) {
  SafetensorsFile f(path);
  unsigned sum = 0;
  for (const TensorInfo& t : f.tensors()) {
    EXPECT_GE(t.begin, 0);
    EXPECT_LE(t.end, size);
    EXPECT_TRUE(!t.unknown.empty() || t.shape.numel() * itemsize(t.dtype) == t.nbytes());
    for (std::byte b : f.bytes(t.name)) sum += static_cast<unsigned>(b);
  }
  static volatile unsigned sink;
  sink = sum;
  (void)sink;
}

TEST(SafetensorsFuzz, EveryTruncation) {
  FuzzFile file(path_of("fuzz_cut.safetensors"));
  const std::string seed = seed_file(Checksums::kCrc);
  for (size_t n = 0; n < seed.size(); ++n) {
    ASSERT_NO_FATAL_FAILURE(file.set(seed.substr(0, n)));
    EXPECT_THROW(read_all(file.path(), static_cast<int64_t>(n)), Error) << n;
  }
}

TEST(SafetensorsFuzz, DamagedFiles) {
  FuzzFile file(path_of("fuzz_damaged.safetensors"));
  const std::vector<std::string_view> words = {"{",
                                               "}",
                                               "[",
                                               "]",
                                               "\"",
                                               "\"w\"",
                                               "null",
                                               "true",
                                               "[0,8]",
                                               "[0,0]",
                                               "\"F8_E4M3\"",
                                               "\"BOOL\"",
                                               "shape",
                                               "xxh3.b",
                                               "crc32c.b",
                                               "\"crc32c.c\":\"0123456789abcdef\",",
                                               "0123456\"",
                                               "dtype",
                                               "\\u0000",
                                               "\\ud800",
                                               "data_offsets",
                                               ",",
                                               "[[[[[[[",
                                               ":",
                                               "{}",
                                               "__metadata__"};
  auto damage = [&](std::string& s, FuzzRandom& random) {
    uint64_t length = 0;
    std::memcpy(&length, s.data(), std::min<size_t>(8, s.size()));
    if (s.size() < 8 || length > s.size() - 8 || random() % 8 == 0) return weft::testing::damage_bytes(s, random);
    std::string header = s.substr(8, length), data = s.substr(8 + length);
    if (random() % 8) weft::testing::damage_text(header, random, words);
    if (random() % 8 == 0) weft::testing::damage_bytes(data, random);
    if (random() % 8) length = header.size();
    s = std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
  };
  weft::testing::fuzz({.seeds = {seed_file(Checksums::kCrc), seed_file(Checksums::kXxh3), seed_file(Checksums::kNone)},
                       .damage = damage,
                       .read =
                           [&](const std::string& s) {
                             file.set(s);
                             read_all(file.path(), static_cast<int64_t>(s.size()));
                           },
                       .names = file.path()});
}

}  // namespace
}  // namespace weft::io
