// Damaged token shards: each is refused, or gives tokens of its vocabulary.
#include <gtest/gtest.h>

#include <cstring>

#include "framework/base/error.h"
#include "framework/testing/fuzz.h"
#include "models/data/dataset.h"
#include "models/data/shard.h"

namespace weft::data {
namespace {

using weft::testing::FuzzFile;
using weft::testing::FuzzRandom;

constexpr size_t kHeader = 256, kDataChecksum = 32, kHeaderChecksum = 248;  // shard.cc

std::string shard_of(int64_t vocab) {
  const std::string path = ::testing::TempDir() + "/fuzz_seed.tok";
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < 100; ++i) ids.push_back(static_cast<int32_t>(i * 7'777'777 % vocab));
  ids.push_back(static_cast<int32_t>(vocab - 1));
  ShardWriter w(path, "bytes", vocab);
  w.append(ids);
  w.commit();
  return io::read_file(path);
}

/// Corrects the checksums, so that the damaged data is read.
void correct(std::string& s, FuzzRandom& random) {
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

TEST(ShardFuzz, DamagedShards) {
  FuzzFile file(::testing::TempDir() + "/fuzz_damaged.tok");
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
                             weft::testing::damage_bytes(s, random);
                             if (random() % 8) correct(s, random);
                           },
                       .read = read,
                       .names = file.path()});
}

}  // namespace
}  // namespace weft::data
