// Damaged npy, npz, IDX and CSV files, pictures and token shards: each is read or refused.
#include <gtest/gtest.h>

#include <cstring>

#include "framework/io/inflate.h"
#include "framework/testing/fuzz.h"
#include "models/data/dataset.h"
#include "models/data/readers/csv.h"
#include "models/data/readers/idx.h"
#include "models/data/readers/image.h"
#include "models/data/readers/npy.h"
#include "models/data/shard.h"
#include "models/data/testing/archive.h"
#include "models/data/testing/pictures.h"

namespace weft::data {
namespace {

using weft::testing::damage_bytes;
using weft::testing::damage_text;
using weft::testing::FuzzFile;
using weft::testing::FuzzRandom;

std::string path_of(const char* name) { return ::testing::TempDir() + "/" + name; }

const std::string kNpy = npy_bytes("<f4", "False", "(2, 3)", std::string(24, 'x'));
const std::vector<std::string_view> kWords = {"'descr'", "'shape'", "(",     ")",     "True",      "False",
                                              "'<f8'",   "'|O'",    "'>i2'", "'|b1'", "(3, 2)",    ",",
                                              "{",       "}",       "()",    "'",     "9999999999"};

// The header alone, whose length is corrected, or any byte.
void damage_npy(std::string& s, FuzzRandom& random) {
  if (random() % 4 == 0 || s.size() < 128) return damage_bytes(s, random);
  std::string header = s.substr(10, 118);
  damage_text(header, random, kWords);
  const size_t n = std::min<size_t>(header.size(), 60000);
  s = s.substr(0, 8) + static_cast<char>(n & 255) + static_cast<char>(n >> 8) + header.substr(0, n) + s.substr(128);
}

TEST(ReadersFuzz, Npy) {
  FuzzFile file(path_of("fuzz.npy"));
  weft::testing::fuzz(
      {.seeds = {kNpy, npy_bytes(">i2", "True", "(2, 2)", "abcdefgh"), npy_bytes("|b1", "False", "()", "x")},
       .damage = damage_npy,
       .read =
           [&](const std::string& s) {
             file.set(s);
             EXPECT_LE(load_npy(file.path()).type().nbytes(), 4 * static_cast<int64_t>(s.size()) + 64);
           },
       .names = file.path()});
}

TEST(ReadersFuzz, Npz) {
  FuzzFile file(path_of("fuzz.npz"));
  weft::testing::fuzz(
      {.seeds = {npz_bytes({{"a.npy", kNpy}, {"b.npy", kNpy}}, false), npz_bytes({{"a.npy", kNpy}}, true),
                 npz_bytes({{"a.npy", npy_bytes("|u1", "False", "(100000,)", std::string(100000, 7))}}, true)},
       .damage = damage_bytes,
       .read =
           [&](const std::string& s) {
             file.set(s);
             load_npz(file.path());
           },
       .names = file.path()});
}

TEST(ReadersFuzz, Idx) {
  FuzzFile file(path_of("fuzz.idx"));
  const std::string idx("\0\0\x08\2\0\0\0\2\0\0\0\3abcdef", 18);
  weft::testing::fuzz({.seeds = {idx, io::gzip_compress(idx), std::string("\0\0\x0d\1\0\0\0\1\x3f\x80\0\0", 12)},
                       .damage = damage_bytes,
                       .read =
                           [&](const std::string& s) {
                             file.set(s);
                             read_idx(file.path());
                           },
                       .names = file.path()});
}

TEST(ReadersFuzz, Csv) {
  FuzzFile file(path_of("fuzz.csv"));
  auto damage = [](std::string& s, FuzzRandom& random) {
    if (random() % 8 == 0) return damage_bytes(s, random);
    damage_text(s, random, {"\"", ",", "\n", "\r\n", "\"\"", "nan", "1e999", "-", "\"x\ny\"", "\xff", "a"});
  };
  weft::testing::fuzz({.seeds = {"a,b,c\n1,2.5,x\n3,,\"y, z\"\n", "1\n2\n", "a,b\r\n\"\"\"\",5\r\n"},
                       .damage = damage,
                       .read =
                           [&](const std::string& s) {
                             file.set(s);
                             const Csv t = read_csv(file.path());
                             for (const Tensor& c : t.columns) EXPECT_EQ(c.numel(), t.rows);
                           },
                       .names = file.path()});
}

// Corrects the checksums of a PNG's chunks, so that damaged chunks are read.
void correct_png(std::string& s) {
  for (size_t at = 8; at + 12 <= s.size();) {
    uint64_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(s[at + i]);
    if (length > s.size() - at - 12) return;
    const uint32_t crc = io::crc32_of(std::string_view(s).substr(at + 4, length + 4));
    for (size_t i = 0; i < 4; ++i) s[at + 8 + length + i] = static_cast<char>(crc >> (24 - 8 * i));
    at += length + 12;
  }
}

TEST(ReadersFuzz, Pictures) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 24 * 24 * 4; ++i) pixels.push_back(static_cast<uint8_t>(i * i));
  weft::testing::fuzz({.seeds = {png_bytes(pixels, 5, 4, PNG_FORMAT_RGB), png_bytes(pixels, 24, 24, PNG_FORMAT_RGBA),
                                 png_bytes(pixels, 9, 3, PNG_FORMAT_GRAY), jpeg_bytes(pixels, 24, 20, 3),
                                 jpeg_bytes(pixels, 24, 20, 3, true), jpeg_bytes(pixels, 17, 9, 1)},
                       .damage =
                           [](std::string& s, FuzzRandom& random) {
                             damage_bytes(s, random);
                             if (s.starts_with("\x89PNG") && random() % 8) correct_png(s);
                           },
                       .read =
                           [](const std::string& s) {
                             const auto bytes = std::as_bytes(std::span(s));
                             for (ImageMode mode : {ImageMode::kUnchanged, ImageMode::kGray})
                               EXPECT_EQ(decode_image(bytes, mode, "picture").dim(), 3);
                           },
                       .names = "picture"});
}

constexpr size_t kHeader = 256, kDataChecksum = 32, kHeaderChecksum = 248;  // shard.cc

std::string shard_of(int64_t vocab) {
  const std::string path = path_of("fuzz_seed.tok");
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < 100; ++i) ids.push_back(static_cast<int32_t>(i * 7'777'777 % vocab));
  ids.push_back(static_cast<int32_t>(vocab - 1));
  ShardWriter w(path, "bytes", vocab);
  w.append(ids);
  w.commit();
  return io::read_file(path);
}

/// Corrects the checksums, so that the damaged data is read.
void correct_shard(std::string& s, FuzzRandom& random) {
  if (s.size() < kHeader) return;
  const auto bytes = std::as_bytes(std::span(s.data(), s.size()));
  auto put = [&](size_t at, uint64_t v) { std::memcpy(s.data() + at, &v, sizeof v); };
  if (random() % 2) {  // the count as well
    uint32_t width;
    std::memcpy(&width, s.data() + 12, sizeof width);
    put(16, (s.size() - kHeader) / std::max<uint32_t>(width, 1));
  }
  put(kDataChecksum, io::checksum(bytes.subspan(kHeader)));
  put(kHeaderChecksum, io::checksum(bytes.first(kHeaderChecksum)));
}

TEST(ReadersFuzz, Shards) {
  FuzzFile file(path_of("fuzz.tok"));
  auto read = [&](const std::string& bytes) {
    file.set(bytes);
    EXPECT_LE(Shard::looks_like(file.path()), bytes.size() >= 8);
    const TokenDataset data = TokenDataset::from_shards({file.path(), file.path()});
    ASSERT_LE(data.size(), static_cast<int64_t>(bytes.size()));
    for (int32_t id : data.tokens(0, data.size())) ASSERT_TRUE(id >= 0 && id < data.vocab_size()) << id;
  };
  weft::testing::fuzz({.seeds = {shard_of(200), shard_of(65536), shard_of(int64_t{1} << 31)},
                       .damage =
                           [](std::string& s, FuzzRandom& random) {
                             damage_bytes(s, random);
                             if (random() % 8) correct_shard(s, random);
                           },
                       .read = read,
                       .names = file.path()});
}

TEST(ReadersFuzz, Bins) {
  FuzzFile file(path_of("fuzz.bin"));
  std::string llmc(1024 + 8, '\0');
  const int32_t header[] = {20240520, 1, 4};
  std::memcpy(llmc.data(), header, sizeof header);
  weft::testing::fuzz({.seeds = {llmc, std::string("\1\0\2\0", 4)},
                       .damage = damage_bytes,
                       .read =
                           [&](const std::string& s) {
                             file.set(s);
                             const TokenDataset data = TokenDataset::from_bins({file.path()}, ByteTokenizer());
                             for (int32_t id : data.tokens(0, data.size())) ASSERT_TRUE(id >= 0 && id < 256) << id;
                           },
                       .names = file.path()});
}

}  // namespace
}  // namespace weft::data
