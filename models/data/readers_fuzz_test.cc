// Damaged npy, npz, IDX and CSV files: each is read or refused.
#include <gtest/gtest.h>

#include "framework/testing/fuzz.h"
#include "models/data/csv.h"
#include "models/data/idx.h"
#include "models/data/npy.h"
#include "models/data/testing/archive.h"

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

}  // namespace
}  // namespace weft::data
