// GGUF files: values of the package `gguf` (models/testing/hf/make_gguf.py), inconsistent files, and written files.
#include "framework/io/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"

namespace weft::io {
namespace {

using weft::testing::error_of;

std::string temp(const char* name) { return ::testing::TempDir() + "/" + name; }

const GgufFile& formats() {
  static const auto* file = new GgufFile("framework/io/testdata/formats.gguf");
  return *file;
}

std::vector<float> values(const GgufFile& file, const std::string& name) {
  const GgufTensor& t = *file.find(name);
  std::vector<float> out(static_cast<size_t>(t.shape.numel()));
  dequantise(*t.format, file.bytes(t).data(), 0, t.shape.numel(), out.data());
  return out;
}

TEST(Gguf, ValuesHaveTheBitsOfThePackage) {
  int compared = 0;
  for (const GgufTensor& t : formats().tensors()) {
    if (!formats().find(t.name + ".values")) continue;
    SCOPED_TRACE(t.name);
    EXPECT_EQ(t.format->name, t.name);
    EXPECT_EQ(t.shape, (Shape{2, 256}));
    const std::vector<float> ours = values(formats(), t.name), theirs = values(formats(), t.name + ".values");
    EXPECT_EQ(std::memcmp(ours.data(), theirs.data(), ours.size() * 4), 0);
    // Ranges that begin and end inside blocks.
    for (const auto& [begin, end] : {std::pair{5, 6}, {31, 33}, {100, 300}, {255, 512}, {7, 7}}) {
      std::vector<float> part(static_cast<size_t>(end - begin));
      dequantise(*t.format, formats().bytes(t).data(), begin, end, part.data());
      EXPECT_TRUE(part.empty() || std::memcmp(part.data(), ours.data() + begin, part.size() * 4) == 0) << begin;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 10);
  const std::vector<float> source = values(formats(), "source");
  std::vector<std::byte> blocks(source.size() / 32 * 34);
  quantise_q8_0(source.data(), std::ssize(source), blocks.data());
  EXPECT_EQ(std::memcmp(blocks.data(), formats().bytes(*formats().find("source.q8_0")).data(), blocks.size()), 0);
  const std::vector<float> tiny(32, 1e-38f);  // the reciprocal of their scale is above all floats
  quantise_q8_0(tiny.data(), 32, blocks.data());
  EXPECT_TRUE(std::all_of(blocks.begin(), blocks.begin() + 34, [](std::byte b) { return b == std::byte{}; }));
}

TEST(Gguf, MetadataHasTypes) {
  const GgufFile& f = formats();
  for (const auto& [key, value] : {std::pair<const char*, int64_t>{"a.u8", 200},
                                   {"a.i8", -3},
                                   {"a.u16", 60000},
                                   {"a.i16", -300},
                                   {"a.u32", 4000000000},
                                   {"a.i32", -70000},
                                   {"a.u64", int64_t{1} << 40},
                                   {"a.i64", -(int64_t{1} << 40)}}) {
    EXPECT_EQ(f.integer(key), value) << key;
    EXPECT_EQ(f.shown(key), std::to_string(value)) << key;
  }
  EXPECT_EQ(f.shown("a.f32"), "1e-05");
  EXPECT_EQ(f.shown("a.f64"), "1e-05");
  EXPECT_EQ(f.boolean("a.bool"), true);
  EXPECT_EQ(f.text("a.text"), "Grüße\n");
  EXPECT_EQ(f.texts("a.texts"), (std::vector<std::string_view>{"a", "", "▁b"}));
  EXPECT_EQ(f.integers("a.integers"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(f.numbers("a.numbers"), (std::vector<double>{0.5, -1.5}));
  EXPECT_EQ(f.integer("missing"), std::nullopt);
  EXPECT_TRUE(f.texts("missing").empty());
  EXPECT_FALSE(f.contains("missing"));
  const std::string path = f.path();
  EXPECT_EQ(error_of([&] { f.integer("a.f32"); }), path + ": 'a.f32' is f32; need a whole number");
  EXPECT_EQ(error_of([&] { f.text("a.texts"); }), path + ": 'a.texts' is a list of text; need a text");
  EXPECT_EQ(error_of([&] { f.integers("a.numbers"); }),
            path + ": 'a.numbers' is a list of f32; need a list of whole numbers");
  EXPECT_EQ(error_of([&] { f.boolean("a.u8"); }), path + ": 'a.u8' is u8; need a bool");
}

TEST(Gguf, AReadOfAFileThatIsCutIsAnError) {
  const std::string path = ::testing::TempDir() + "/cut.gguf";
  const float x[16] = {1, 2, 3};
  write_gguf(path, {}, std::vector{GgufData{"x", kGgufF32, {16}, std::as_bytes(std::span(x))}});
  const GgufFile file(path);
  const GgufTensor& t = *file.find("x");
  float two = 0;
  const auto read = [&](int64_t begin) { file.read(t, begin, std::as_writable_bytes(std::span(&two, 1))); };
  std::filesystem::resize_file(path, static_cast<uintmax_t>(t.begin + 8));
  read(4);
  EXPECT_EQ(two, 2);
  EXPECT_EQ(error_of([&] { read(8); }),
            str_cat(path, ": the file had ", t.begin + 64, " bytes when it was opened and has ", t.begin + 8,
                    " now; need a file that no program changes while it is read"));
}

// The bytes of a file, part by part; the parts may be inconsistent.
struct RawFile {
  std::string bytes = "GGUF";
  template <class T>
  RawFile& put(T v) {
    bytes.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  RawFile& text(std::string_view s) {
    put(uint64_t{s.size()});
    bytes += s;
    return *this;
  }
  RawFile& head(uint64_t tensors, uint64_t keys, uint32_t version = 3) { return put(version).put(tensors).put(keys); }
  RawFile& key(std::string_view k, uint32_t type) { return text(k).put(type); }
  RawFile& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t format, uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) put(d);
    return put(format).put(offset);
  }
  RawFile& data(size_t n) {
    bytes.resize((bytes.size() + 31) / 32 * 32 + n);
    return *this;
  }
};

TEST(Gguf, InconsistentFilesGetOneSentence) {
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  const std::pair<RawFile, const char*> cases[] = {
      {RawFile(), "not a GGUF file: 4 bytes are too few"},
      {RawFile{.bytes = "GGML"}.head(0, 0), "not a GGUF file: it does not begin with GGUF"},
      {RawFile().head(0, 0, 1), "is GGUF of version 1; need 2 or 3"},
      {RawFile().head(0, 0, 0x3000000), "is GGUF of version 50331648; need 2 or 3 with the lowest byte first"},
      {RawFile().head(kHuge, 0), "the number of tensors at byte 8 is 9223372036854775808; the file has 8 bytes left"},
      {RawFile().head(0, 7).data(64), "the number of keys at byte 16 is 7; the file has 72 bytes left"},
      {RawFile().head(0, 1).text("").data(64), "a key has 0 bytes; need 1 to 65535"},
      {RawFile().head(0, 1).put(kHuge).data(64), "the length of a key at byte 24 is 9223372036854775808"},
      {RawFile().head(0, 1).key("a", 13).data(64), "value of 'a' has type 13; need 0 to 12"},
      {RawFile().head(0, 1).key("a", 8).put(kHuge).data(64), "the length of a text at byte 37 is 9223372036854775808"},
      {RawFile().head(0, 1).key("a", 9).put(uint32_t{9}).data(64), "value of 'a' is a list of lists; need one list"},
      {RawFile().head(0, 1).key("a", 9).put(uint32_t{10}).put(kHuge / 4).data(64),
       "the length of a list at byte 41 is"},
      {RawFile().head(0, 1).key("a", 9).put(uint32_t{8}).put(uint64_t{99}).data(72),
       "the length of a list at byte 41 is 99"},
      {RawFile().head(0, 1).key("a", 7).put(uint8_t{2}).data(64), "value of 'a' is the bool 2; need 0 or 1"},
      {RawFile().head(0, 1).key("a\n", 7).put(uint8_t{2}).data(64), "value of 'a\\n' is the bool 2"},
      {RawFile().head(0, 2).key("a", 0).put(uint8_t{2}).key("a", 0).put(uint8_t{2}).data(64), "key 'a' occurs twice"},
      {RawFile().head(0, 1).key("general.alignment", 4).put(uint32_t{1} << 30).data(64),
       "'general.alignment' is 1073741824; need a power of two from 8 to 1048576"},
      {RawFile().head(0, 1).key("general.alignment", 4).put(uint32_t{24}).data(64), "'general.alignment' is 24"},
      {RawFile().head(0, 1).key("general.alignment", 10).put(uint64_t{32}).data(64),
       "'general.alignment' is u64; need u32"},
      {RawFile().head(0, 1).key("split.count", 4).put(uint32_t{3}).data(64),
       "is the first of 3 files; need the name NAME"},
      {RawFile().head(0, 1).key("split.count", 4).put(uint32_t{100000}).data(64), "'split.count' is 100000"},
      {RawFile().head(1, 0).tensor("t", {}, 0, 0).data(64), "tensor 't' has 0 dims; need 1 to 4"},
      {RawFile().head(1, 0).tensor("t", {1, 1, 1, 1, 1}, 0, 0).data(64), "tensor 't' has 5 dims; need 1 to 4"},
      {RawFile().head(1, 0).tensor("t", {0, 4}, 0, 0).data(64), "tensor 't' has the extent 0"},
      {RawFile().head(1, 0).tensor("t", {kHuge}, 0, 0).data(64), "tensor 't' has the extent 9223372036854775808"},
      {RawFile().head(1, 0).tensor("t", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0).data(64),
       "tensor 't' has more bytes than 2^63-1"},
      {RawFile().head(1, 0).tensor("t", {uint64_t{1} << 61, 1}, 0, 0).data(64),
       "tensor 't' has more bytes than 2^63-1"},
      {RawFile().head(1, 0).tensor("t", {33}, 8, 0).data(64),
       "tensor 't' has rows of 33; need a multiple of 32, the block"},
      {RawFile().head(1, 0).tensor("t", {32}, 4, 0).data(64),
       "tensor 't' has format 4 of ggml, which Weft does not know"},
      {RawFile().head(1, 0).tensor("t", {4}, 0, 8).data(64),
       "tensor 't' begins at 8 in the data; need a multiple of 32"},
      {RawFile().head(1, 0).tensor("t", {4}, 0, kHuge).data(64),
       "tensor 't' begins at 9223372036854775808 in the data"},
      {RawFile().head(1, 0).tensor("t", {16}, 0, 32).data(64),
       "tensor 't' needs 64 bytes from byte 32 of the data; the "},
      {RawFile().head(1, 0).tensor("t", {1}, 0, 0), "tensor 't' needs 4 bytes from byte 0 of the data; the file has 0"},
      {RawFile().head(2, 0).tensor("a", {16}, 0, 0).tensor("b", {16}, 0, 32).data(128), "tensors 'a' and 'b' overlap"},
      {RawFile().head(2, 0).tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).data(128), "tensor 'a' occurs twice"},
  };
  const std::string path = temp("inconsistent.gguf");
  for (const auto& [file, need] : cases) {
    write_file_atomic(path, file.bytes);
    const std::string error = error_of([&] { GgufFile opened(path); });
    EXPECT_EQ(error.find(path + ": "), 0u) << error;
    EXPECT_NE(error.find(need), error.npos) << "need: " << need << "\ngot: " << error;
    EXPECT_EQ(error.find('\n'), error.npos) << error;
  }
  // Cut at each byte of the head and the data.
  const std::string whole = RawFile().head(1, 1).key("a", 8).text("text").tensor("t", {16}, 0, 0).data(64).bytes;
  for (size_t n = 0; n < whole.size(); ++n) {
    write_file_atomic(path, whole.substr(0, n));
    EXPECT_THROW(GgufFile{path}, Error) << n;
  }
  write_file_atomic(path, whole);
  EXPECT_EQ(GgufFile(path).text("a"), "text");
}

TEST(Gguf, SplitFiles) {
  const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto write = [&](int number, uint32_t no, uint32_t count, const char* tensor) {
    const std::string path = temp(str_cat("split-0000", number, "-of-00002.gguf").c_str());
    const GgufData data{tensor, kGgufF32, {2, 4}, std::as_bytes(std::span(x))};
    write_gguf(path, {{"split.no", no}, {"split.count", count}, {"split.tensors.count", uint32_t{2}}}, {&data, 1});
    return path;
  };
  const std::string first = write(1, 0, 2, "a"), second = temp("split-00002-of-00002.gguf");
  remove_all(second);
  EXPECT_NE(error_of([&] { GgufFile f(first); }).find(second), std::string::npos);
  write(2, 1, 2, "b");
  const GgufFile both(first);
  ASSERT_EQ(both.tensors().size(), 2u);
  EXPECT_EQ(both.find("b")->part, 1u);
  EXPECT_EQ(values(both, "b"), std::vector<float>(x, x + 8));
  EXPECT_EQ(error_of([&] { GgufFile f(second); }),
            second + ": is part 2 of 2; need the first, NAME-00001-of-00002.gguf");
  write(2, 1, 2, "a");
  EXPECT_EQ(error_of([&] { GgufFile f(first); }), first + ": tensor 'a' occurs twice");
  write(2, 0, 2, "b");
  EXPECT_EQ(error_of([&] { GgufFile f(first); }), second + ": is part 1 of 2; need part 2 of 2");
}

TEST(Gguf, WrittenValuesAreRead) {
  const std::string path = temp("written.gguf");
  const float x[4] = {1, -2, 3, 0.5};
  const GgufData data{"x", kGgufF32, {1, 4}, std::as_bytes(std::span(x))};
  write_gguf(path,
             {{"b", true},
              {"n", uint32_t{7}},
              {"f", 0.25f},
              {"t", std::string("text")},
              {"ts", std::vector<std::string>{"a", ""}},
              {"is", std::vector<int32_t>{-1, 2}},
              {"none", std::vector<std::string>{}},
              {"fs", std::vector<float>{1.5f}}},
             {&data, 1});
  const GgufFile f(path);
  EXPECT_EQ(f.boolean("b"), true);
  EXPECT_EQ(f.integer("n"), 7);
  EXPECT_EQ(f.shown("f"), "0.25");
  EXPECT_EQ(f.text("t"), "text");
  EXPECT_EQ(f.texts("ts"), (std::vector<std::string_view>{"a", ""}));
  EXPECT_EQ(f.integers("is"), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(f.numbers("fs"), std::vector<double>{1.5});
  EXPECT_TRUE(f.contains("none") && f.texts("none").empty());
  EXPECT_EQ(values(f, "x"), std::vector<float>(x, x + 4));
}

TEST(Gguf, MetadataOfAnyTypeIsWrittenAgain) {
  const std::string path = temp("again.gguf");
  const GgufMetadata all = formats().metadata("a.");
  EXPECT_EQ(all.size(), 15u);
  write_file_atomic(path, gguf_of(all));
  const GgufFile f(path);
  EXPECT_TRUE(f.tensors().empty());
  ASSERT_EQ(f.keys().size(), all.size());
  for (const char* key :
       {"a.u8", "a.i8", "a.u16", "a.i16", "a.u32", "a.i32", "a.u64", "a.i64", "a.f32", "a.f64", "a.bool", "a.text"})
    EXPECT_EQ(f.shown(key), formats().shown(key)) << key;
  EXPECT_EQ(f.texts("a.texts"), formats().texts("a.texts"));
  EXPECT_EQ(f.integers("a.integers"), formats().integers("a.integers"));
  EXPECT_EQ(f.numbers("a.numbers"), formats().numbers("a.numbers"));
}

}  // namespace
}  // namespace weft::io
