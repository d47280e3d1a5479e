// Damaged GGUF files: each is read in full or refused.
#include <gtest/gtest.h>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/io/gguf.h"
#include "framework/testing/fuzz.h"

namespace weft::io {
namespace {

std::string seed_file() {
  const std::string path = ::testing::TempDir() + "/fuzz_seed.gguf";
  const float x[64] = {1, 2, 3};
  const auto data = std::as_bytes(std::span(x));
  const GgufData tensors[] = {{"a.weight", kGgufF32, {2, 32}, data},
                              {"b", kGgufQ8_0, {1, 2, 32}, data.first(68)},
                              {"c", 14, {256}, data.first(210)}};
  write_gguf(path,
             {{"general.alignment", uint32_t{32}},
              {"general.architecture", std::string("llama")},
              {"split.count", uint32_t{1}},
              {"tokens", std::vector<std::string>{"a", "bc", ""}},
              {"scores", std::vector<float>{1, 2}},
              {"types", std::vector<int32_t>{1, 3}},
              {"add_bos", true}},
             tensors);
  return read_file(path);
}

/// Opens the file, reads all values of the metadata, and every element of every tensor.
void read_all(const std::string& path) {
  const GgufFile f(path);
  for (const std::string_view key : f.keys()) {
    int read = 0;
    const auto as = [&](auto get) {
      try {
        get(), ++read;
      } catch (const Error&) {
      }
    };
    as([&] { f.shown(key); }), as([&] { f.integer(key); }), as([&] { f.boolean(key); });
    as([&] { f.text(key); }), as([&] { f.texts(key); }), as([&] { f.integers(key); }), as([&] { f.numbers(key); });
    f.contains(key);
  }
  float sum = 0;
  for (const GgufTensor& t : f.tensors()) {
    if (!t.format->dequantise) continue;
    std::vector<float> values(static_cast<size_t>(t.shape.numel()));
    EXPECT_EQ(t.shape.numel() / t.format->block * t.format->block_bytes, std::ssize(f.bytes(t)));
    dequantise(*t.format, f.bytes(t).data(), 0, t.shape.numel(), values.data());
    sum += values.back();
  }
  static volatile float sink;
  sink = sum;
  (void)sink;
}

TEST(GgufFuzz, DamagedFiles) {
  weft::testing::FuzzFile file(::testing::TempDir() + "/fuzz_damaged.gguf");
  weft::testing::fuzz({.seeds = {seed_file()},
                       .damage = weft::testing::damage_bytes,
                       .read =
                           [&](const std::string& s) {
                             file.set(s);
                             read_all(file.path());
                           },
                       .names = file.path()});
}

}  // namespace
}  // namespace weft::io
