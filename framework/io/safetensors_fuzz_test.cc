// Damages thousands of files: each is read in full or rejected with one sentence; never a crash (see the asan config).
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/io/safetensors.h"

namespace weft::io {
namespace {

std::string seed_file(const std::string& path) {
  float x[6] = {1, 2, 3, 4, 5, 6};
  int64_t ids[2] = {7, 8};
  auto view = [](const char* name, void* data, DType t, const Shape& s) {
    return NamedView{name, {data, t, s, contiguous_strides(s)}};
  };
  std::vector<NamedView> tensors = {view("a.weight", x, kFloat32, {2, 3}), view("b", ids, kInt64, {2}),
                                    view("c", x, kBFloat16, {1, 2, 1}), view("scalar", x, kUInt8, {})};
  write_safetensors(path, tensors, {{"format", "pt"}});
  return read_file(path);
}

/// Opens the file and touches every byte of every tensor; an Error must be one line.
void read_all(const std::string& path, const std::string& content, int* good) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;  // no fsync: there are thousands of files
  try {
    SafetensorsFile f(path);
    for (const TensorInfo& t : f.tensors()) {
      ASSERT_GE(t.begin, 0);
      ASSERT_LE(t.end, static_cast<int64_t>(content.size()));
      ASSERT_EQ(t.shape.numel() * itemsize(t.dtype), t.nbytes());
      try {
        unsigned sum = 0;
        for (std::byte b : f.bytes(t.name)) sum += static_cast<unsigned>(b);
        static volatile unsigned sink;
        sink = sum;
        (void)sink;
      } catch (const Error& e) {
        ASSERT_EQ(e.code(), Code::kDataLoss) << e.what();
      }
    }
    ++*good;
  } catch (const Error& e) {
    ASSERT_NE(e.code(), Code::kInternal) << e.what();
    ASSERT_GT(std::strlen(e.what()), 10u);
  }
}

TEST(SafetensorsFuzz, EveryTruncation) {
  std::string path = testing::TempDir() + "/fuzz_cut.safetensors";
  std::string seed = seed_file(path);
  int good = 0;
  for (size_t n = 0; n < seed.size(); ++n) ASSERT_NO_FATAL_FAILURE(read_all(path, seed.substr(0, n), &good));
  EXPECT_EQ(good, 0);
  ASSERT_NO_FATAL_FAILURE(read_all(path, seed, &good));
  EXPECT_EQ(good, 1);
}

TEST(SafetensorsFuzz, MutatedFiles) {
  std::string path = testing::TempDir() + "/fuzz_mutated.safetensors";
  std::string seed = seed_file(path);
  uint64_t header;
  std::memcpy(&header, seed.data(), 8);
  const std::string tokens[] = {
      "{",    "}",     "[", "]",     ",",     ":",       "\"",   "-",    "9223372036854775807", "1e400",
      "null", "\"w\"", "0", "[0,8]", "[[[[[", "\\u0000", "\xff", "true", "18446744073709551615"};
  std::mt19937_64 rng(20240601);
  auto below = [&](uint64_t n) { return rng() % n; };
  int good = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string s = seed;
    for (uint64_t k = 1 + below(4); k > 0; --k) {
      size_t at = 8 + below(header);
      switch (below(6)) {
        case 0:
          s[at] = static_cast<char>(rng());
          break;
        case 1:
          s[at] = static_cast<char>('0' + below(10));
          break;
        case 2:
          s.insert(at, tokens[below(std::size(tokens))]);
          break;
        case 3:
          s.erase(at, 1 + below(8));
          break;
        case 4:
          s[below(8)] = static_cast<char>(rng());
          break;
        case 5:
          s.insert(at, s.substr(8 + below(header), below(40)));
          break;
      }
      if (s.size() < 8 + header) break;
    }
    if (below(2) && s.size() > 8) {
      // Keep the length correct, so that the damage reaches the parser.
      uint64_t n = header + s.size() - seed.size();
      std::memcpy(s.data(), &n, 8);
    }
    ASSERT_NO_FATAL_FAILURE(read_all(path, s, &good)) << "round " << round;
  }
  EXPECT_LT(good, 4000);
}

}  // namespace
}  // namespace weft::io
