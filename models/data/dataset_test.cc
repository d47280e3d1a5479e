// Token sources agree with each other, damaged shards are refused, and bad input gives one sentence.
#include "models/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "models/data/corpus.h"
#include "models/data/shard.h"

namespace weft::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string fresh_folder(const std::string& name) {
  std::string path = testing::TempDir() + "/dataset_test_" + name;
  io::remove_all(path);
  io::make_folders(path);
  return path;
}

template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_NE(e.code(), Code::kInternal) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "no error";
}

std::string text_of(const TokenDataset& d) { return ByteTokenizer().decode(d.tokens(0, d.size())); }

TEST(Shard, RoundTripInBothWidths) {
  std::string dir = fresh_folder("shard");
  for (int64_t vocab : {int64_t{256}, int64_t{65536}, int64_t{65537}, int64_t{1} << 31}) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < 1000; ++i) ids.push_back(static_cast<int32_t>((i * 7'777'777) % vocab));
    ids.push_back(static_cast<int32_t>(vocab - 1));
    ShardWriter w(dir + "/a.tok", "test", vocab);
    w.append(std::span(ids).first(300));
    w.append(std::span(ids).subspan(300));
    w.commit();
    EXPECT_EQ(io::file_size(dir + "/a.tok"), 256 + 1001 * (vocab <= 65536 ? 2 : 4));
    Shard s(dir + "/a.tok");
    EXPECT_EQ(s.count(), 1001);
    EXPECT_EQ(s.vocab_size(), vocab);
    EXPECT_EQ(s.tokenizer(), "test");
    std::vector<int32_t> back(1001);
    s.copy(0, back);
    EXPECT_EQ(back, ids);
    back.resize(10);
    s.copy(991, back);
    EXPECT_EQ(back, std::vector<int32_t>(ids.end() - 10, ids.end()));
  }
  ShardWriter w(dir + "/b.tok", "test", 256);
  EXPECT_THAT(message([&] { w.append(std::vector<int32_t>{256}); }), HasSubstr("got token 256; need 0 to 255"));
  EXPECT_THAT(io::list_folder(dir), testing::Contains("a.tok"));
}

TEST(Shard, EveryDamageIsFound) {
  std::string dir = fresh_folder("damage"), path = dir + "/a.tok";
  ShardWriter w(path, "bytes", 256);
  w.append(std::vector<int32_t>{1, 2, 3, 4, 5});
  w.commit();
  std::string good = io::read_file(path);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 4;
    io::write_file_atomic(path, bad);
    EXPECT_THAT(message([&] { Shard s(path); }), HasSubstr("token shard")) << "byte " << i;
    io::write_file_atomic(path, good.substr(0, i));
    EXPECT_THAT(message([&] { Shard s(path); }), HasSubstr("token shard")) << "cut at " << i;
  }
  io::write_file_atomic(path, good + "xx");
  EXPECT_THAT(message([&] { Shard s(path); }), HasSubstr("its header says 5 tokens of 2 bytes, but 12 bytes follow"));
  io::write_file_atomic(path, good);
  EXPECT_EQ(message([&] { Shard s(path); }), "no error");
}

TEST(Dataset, SlicesAndRanges) {
  std::vector<int32_t> ids(100);
  for (int i = 0; i < 100; ++i) ids[i] = i;
  for (int64_t vocab : {100, 1000, 100'000}) {
    TokenDataset d = TokenDataset::from_tokens(ids, vocab);
    EXPECT_EQ(d.size(), 100);
    EXPECT_EQ(d.slice(10, 50).slice(5, 10).tokens(1, 3), (std::vector<int32_t>{16, 17, 18}));
    EXPECT_THAT(message([&] { d.slice(10, 20).tokens(8, 3); }), HasSubstr("got range 8 to 11; the data has 10"));
    EXPECT_THAT(message([&] { d.tokens(-1, 3); }), HasSubstr("got range -1 to 2"));
    EXPECT_THAT(message([&] { d.slice(50, 101); }), HasSubstr("got range 50 to 101"));
  }
  EXPECT_THAT(message([&] { TokenDataset::from_tokens(ids, 99); }), HasSubstr("got 99; need 0 to 98"));
}

TEST(Dataset, Split) {
  TokenDataset d = TokenDataset::synthetic(10, 1000, 1);
  TokenDataset::Split s = d.split(16);
  EXPECT_EQ(s.train.size(), 950);
  EXPECT_EQ(s.validation.size(), 50);
  EXPECT_EQ(s.validation.tokens(0, 50), d.tokens(950, 50));
  EXPECT_EQ(d.split(100).validation.size(), 101);
  EXPECT_EQ(d.split(499).train.size(), 500);
  EXPECT_EQ(d.split(16, 0.999).train.size(), 17);
  EXPECT_THAT(message([&] { d.split(500); }),
              HasSubstr("the text has 1000 tokens; training and validation need at least 501"));
  EXPECT_THAT(message([&] { d.split(0); }), HasSubstr("got seq_len 0"));
  EXPECT_THAT(message([&] { d.split(16, 1.5); }), HasSubstr("validation share of 1.5"));
}

TEST(Dataset, SyntheticIsAPureFunction) {
  TokenDataset a = TokenDataset::synthetic(50304, 100'000, 7);
  EXPECT_EQ(a.tokens(500, 100), TokenDataset::synthetic(50304, 1 << 30, 7).tokens(500, 100));
  EXPECT_NE(a.tokens(0, 100), TokenDataset::synthetic(50304, 100'000, 8).tokens(0, 100));
  // Each id of a small vocabulary appears about equally often: 5 standard deviations of a binomial.
  std::vector<int> counts(16);
  for (int32_t id : TokenDataset::synthetic(16, 160'000, 3).tokens(0, 160'000)) ++counts.at(id);
  for (int c : counts) EXPECT_NEAR(c, 10'000, 5 * 97);
  EXPECT_THAT(message([] { TokenDataset::synthetic(0, 10, 1); }), HasSubstr("vocabulary of 0"));
}

TEST(Prepare, FileAndFolderInMemoryAndAsShards) {
  std::string dir = fresh_folder("prepare");
  io::make_folders(dir + "/text/sub");
  io::write_file_atomic(dir + "/text/b.txt", "second\n");
  io::write_file_atomic(dir + "/text/a.txt", "first");
  io::write_file_atomic(dir + "/text/sub/c.txt", "third");
  io::write_file_atomic(dir + "/text/sub/empty.txt", "");
  io::write_file_atomic(dir + "/text/notes.md", "no");
  io::write_file_atomic(dir + "/text/.hidden.txt", "no");
  ByteTokenizer t;
  EXPECT_EQ(text_of(prepare(dir + "/text/a.txt", t)), "first");
  std::string joined = text_of(prepare(dir + "/text", t));
  EXPECT_EQ(joined, "first\n\nsecond\n\nthird\n\n");

  TokenizeOptions o{.cache_folder = dir + "/cache", .memory_bytes = 4, .shard_tokens = 6};
  double last = 0;
  o.progress = [&](double share) { last = share; };
  TokenDataset d = prepare(dir + "/text", t, o);
  EXPECT_EQ(last, 1);
  EXPECT_EQ(text_of(d), joined);
  EXPECT_EQ(t.decode(d.tokens(4, 9)), joined.substr(4, 9));
  auto folders = io::list_folder(dir + "/cache");
  ASSERT_EQ(folders.size(), 1u);
  std::string kept = dir + "/cache/" + folders[0];
  EXPECT_THAT(io::list_folder(kept), ElementsAre("00000.tok", "00001.tok", "00002.tok", "00003.tok"));

  // Intact shards are reused, damaged shards are made again, and other content has its own shards.
  last = -1;
  EXPECT_EQ(text_of(prepare(dir + "/text", t, o)), joined);
  EXPECT_EQ(last, -1);
  std::string shard = io::read_file(kept + "/00001.tok");
  shard.back() ^= 1;
  io::write_file_atomic(kept + "/00001.tok", shard);
  EXPECT_EQ(text_of(prepare(dir + "/text", t, o)), joined);
  EXPECT_EQ(last, 1);
  io::write_file_atomic(dir + "/text/a.txt", "First");
  EXPECT_EQ(text_of(prepare(dir + "/text", t, o)), "First" + joined.substr(5));
  EXPECT_EQ(io::list_folder(dir + "/cache").size(), 2u);

  // Shards given by path.
  EXPECT_EQ(text_of(prepare(kept, t)), joined);
  EXPECT_EQ(text_of(prepare(kept + "/00000.tok", t)), joined.substr(0, 6));
}

TEST(Prepare, LongTextInPieces) {
  std::string dir = fresh_folder("pieces");
  std::string text;
  while (text.size() < 9'000'000) text += "line " + std::to_string(text.size()) + "\n";
  text += std::string(5'000'000, 'x');  // one line longer than a piece
  io::write_file_atomic(dir + "/t.txt", text);
  TokenizeOptions o{.cache_folder = dir + "/cache", .memory_bytes = 1};
  EXPECT_TRUE(text_of(prepare(dir + "/t.txt", ByteTokenizer(), o)) == text);
  EXPECT_TRUE(text_of(prepare(dir + "/t.txt", ByteTokenizer())) == text);
}

class EndingTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "ending"; }
  int64_t vocab_size() const override { return 257; }
  std::vector<int32_t> encode(std::string_view text) const override { return ByteTokenizer().encode(text); }
  void encode_parts(std::string_view text, size_t n, const IdSink& sink) const override {
    ByteTokenizer().encode_parts(text, n, sink);
  }
  std::string decode(std::span<const int32_t> ids) const override { return ByteTokenizer().decode(ids); }
  int32_t end_of_text() const override { return 256; }
};

TEST(Prepare, EndOfTextAfterEachDocument) {
  std::string dir = fresh_folder("ending");
  io::write_file_atomic(dir + "/a.txt", "a");
  io::write_file_atomic(dir + "/b.txt", "b\n");
  EndingTokenizer t;
  TokenDataset d = prepare(dir, t);
  EXPECT_THAT(d.tokens(0, d.size()), ElementsAre('a', 256, 'b', '\n', 256));
  // Tokens of one tokenizer are not used for another.
  ShardWriter w(dir + "/a.tok", "ending", 257);
  w.append(std::vector<int32_t>{1});
  w.commit();
  EXPECT_THAT(message([&] { prepare(dir + "/a.tok", ByteTokenizer()); }),
              HasSubstr("holds tokens of 'ending' with a vocabulary of 257; need 'bytes' with 256"));
}

TEST(Prepare, FilesOfLlmcAndNanoGpt) {
  const std::string dir = fresh_folder("bins");
  const auto bytes = [](auto... values) {
    std::string out;
    ((out += std::string(reinterpret_cast<const char*>(&values), sizeof values)), ...);
    return out;
  };
  const auto header = [&](int32_t magic, int32_t version, int32_t count) {
    std::string h = bytes(magic, version, count);
    h.resize(1024);
    return h;
  };
  EndingTokenizer t;
  const auto tokens = [&](const std::string& content) {
    io::write_file_atomic(dir + "/x.bin", content);
    const TokenDataset d = prepare(dir, t);
    return d.tokens(0, d.size());
  };
  const std::string u16 = bytes(uint16_t{3}, uint16_t{256}), u32 = bytes(uint32_t{7}, uint32_t{256});
  EXPECT_THAT(tokens(u16), ElementsAre(3, 256));
  EXPECT_THAT(tokens(header(20240520, 1, 2) + u16), ElementsAre(3, 256));
  EXPECT_THAT(tokens(header(20240801, 7, 2) + u32), ElementsAre(7, 256));
  const auto refused = [&](const std::string& content) { return message([&] { tokens(content); }); };
  EXPECT_THAT(refused(header(20240520, 2, 2) + u16),
              HasSubstr("x.bin: shard of llm.c of version 2; this program reads version 1"));
  EXPECT_THAT(refused(header(20240520, 1, 3) + u16), HasSubstr("its header says 3 tokens, but 4 bytes follow"));
  EXPECT_THAT(refused("abc"), HasSubstr("x.bin: not ids of nanoGPT, 3 bytes of u16"));
  EXPECT_THAT(refused(bytes(uint16_t{257})), HasSubstr("token 0 is 257; need 0 to 256"));
  EXPECT_THAT(message([&] { prepare(dir, ByteTokenizer()); }), HasSubstr("need --tokenizer FILE"));
}

TEST(Prepare, BadInputIsOneSentence) {
  std::string dir = fresh_folder("bad");
  ByteTokenizer t;
  EXPECT_EQ(message([&] { prepare(dir + "/no.txt", t); }),
            "cannot read '" + dir + "/no.txt': No such file or directory");
  EXPECT_EQ(message([&] { prepare(dir, t); }), dir + ": the folder holds no .txt file");
  io::write_file_atomic(dir + "/empty.txt", "");
  EXPECT_EQ(message([&] { prepare(dir + "/empty.txt", t); }), dir + "/empty.txt: is empty; need text");
  io::write_file_atomic(dir + "/zero.txt", std::string("ab\0cd", 5));
  EXPECT_EQ(message([&] { prepare(dir + "/zero.txt", t); }),
            dir + "/zero.txt: not a text file: byte 2 is zero; need plain text");
  TokenizeOptions o{.cache_folder = dir + "/cache", .memory_bytes = 1};
  EXPECT_THAT(message([&] { prepare(dir + "/zero.txt", t, o); }), HasSubstr("byte 2 is zero"));
  EXPECT_TRUE(io::list_folder(dir + "/cache").empty());
  io::write_file_atomic(dir + "/control.txt", std::string(100, '\x02'));
  EXPECT_THAT(message([&] { prepare(dir + "/control.txt", t); }), HasSubstr("100 of 100 bytes are control characters"));
  io::write_file_atomic(dir + "/cut.tok", "WEFTTOK\nxx");
  EXPECT_THAT(message([&] { prepare(dir + "/cut.tok", t); }), HasSubstr("not a token shard: 10 bytes are too few"));
  io::write_file_atomic(dir + "/utf8.txt", "d\xC3\xA9j\xC3\xA0 vu \xF0\x9F\x98\x80");
  EXPECT_EQ(prepare(dir + "/utf8.txt", t).size(), 14);
}

TEST(DataIdentity, IsOfNamesSizesAndContent) {
  const std::string dir = fresh_folder("identity"), a = dir + "/a.txt", b = dir + "/b/c.txt";
  io::make_folders(dir + "/b");
  std::set<std::string> seen;
  const auto differs = [&] { return seen.insert(data_identity(dir)).second; };
  io::write_file_atomic(a, "one two");
  EXPECT_TRUE(differs());
  EXPECT_THAT(*seen.begin(), HasSubstr("1 file, 7 bytes, checksum "));
  io::write_file_atomic(a, "one twO");
  EXPECT_TRUE(differs());
  io::write_file_atomic(a, "one");
  io::write_file_atomic(b, " two");
  EXPECT_TRUE(differs());
  std::filesystem::rename(b, dir + "/b/d.txt");
  EXPECT_TRUE(differs());
  EXPECT_FALSE(differs());
  const std::string copy = fresh_folder("identity_copy");
  std::filesystem::copy(dir, copy, std::filesystem::copy_options::recursive);
  EXPECT_EQ(data_identity(copy), data_identity(dir));  // the folder's own name does not count
  // Samples of a large corpus include the first and the last bytes.
  std::filesystem::resize_file(a, size_t{80} << 20);
  EXPECT_TRUE(differs());
  std::filesystem::resize_file(a, (size_t{80} << 20) - 1);
  std::ofstream(a, std::ios::app) << "x";
  EXPECT_TRUE(differs());
}

TEST(OpenData, Flag) {
  ByteTokenizer t;
  EXPECT_TRUE(text_of(open_data("", t)) == embedded_corpus());
  EXPECT_EQ(open_data("shakespeare", t).size(), 5053117);
  EXPECT_EQ(open_data("synthetic", t, 50304, 1).vocab_size(), 50304);
  EXPECT_THAT(message([&] { open_data("/no/such", t); }), HasSubstr("No such file"));
  EXPECT_THAT(message([&] { data_identity("/no/such"); }), HasSubstr("No such file"));
  EXPECT_EQ(data_identity("synthetic"), "synthetic");
}

}  // namespace
}  // namespace weft::data
