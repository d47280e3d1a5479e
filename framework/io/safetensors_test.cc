// Tests safetensors: round trips, the layout on disk, folders with an index, and checksums.
#include "framework/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "framework/base/testing/error_of.h"
#include "framework/io/checksum.h"
#include "framework/io/crc32c.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/safetensors_layout.h"

namespace weft::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using weft::testing::error_of;

std::string fresh_folder(const std::string& name) {
  std::string path = ::testing::TempDir() + "/safetensors_test_" + name;
  remove_all(path);
  make_folders(path);
  return path;
}

NamedView view(std::string name, const void* data, DType dtype, const Shape& shape) {
  return {std::move(name), {const_cast<void*>(data), dtype, shape, contiguous_strides(shape)}};
}

/// A file with the given header text and data.
void write_raw(const std::string& path, const std::string& header, const std::string& data) {
  uint64_t n = header.size();
  write_file_atomic(path, std::string(reinterpret_cast<const char*>(&n), 8) + header + data);
}

TEST(Safetensors, RoundTripOfAllDtypes) {
  std::string dir = fresh_folder("round");
  std::vector<unsigned char> data(8 * 6);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 37);
  std::vector<NamedView> tensors;
  for (int d = 0; d < kNumDTypes; ++d) {
    DType t = static_cast<DType>(d);
    tensors.push_back(view(str_cat("t.", to_string_view(t)), data.data(), t, {2, 3}));
  }
  tensors.push_back(view("scalar \"quoted\" \xC3\xA9", data.data(), kFloat32, {}));
  tensors.push_back(view("empty", nullptr, kInt64, {0, 7}));
  write_safetensors(dir + "/a.safetensors", tensors, {{"format", "pt"}, {"note", "x"}});

  SafetensorsFile f(dir + "/a.safetensors");
  EXPECT_EQ(f.tensors().size(), tensors.size());
  EXPECT_EQ(f.metadata(), (Metadata{{"format", "pt"}, {"note", "x"}}));
  for (const NamedView& t : tensors) {
    const TensorInfo& info = f.at(t.name);
    EXPECT_EQ(info.dtype, t.view.dtype);
    EXPECT_EQ(info.shape, t.view.shape);
    std::span<const std::byte> bytes = f.bytes(t.name);
    ASSERT_EQ(bytes.size(), static_cast<size_t>(t.view.numel() * itemsize(t.view.dtype)));
    if (!bytes.empty()) {
      EXPECT_EQ(std::memcmp(bytes.data(), data.data(), bytes.size()), 0) << t.name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % itemsize(info.dtype), 0u) << t.name;
    }
  }
  EXPECT_THAT(error_of([&] { f.at("no"); }),
              HasSubstr(str_cat("a.safetensors: no tensor 'no' among its ", tensors.size())));

  std::string once = read_file(dir + "/a.safetensors");
  write_safetensors(dir + "/b.safetensors", tensors, {{"note", "x"}, {"format", "pt"}});
  EXPECT_EQ(once, read_file(dir + "/b.safetensors"));
}

TEST(Safetensors, HeaderIsWhatOthersRead) {
  std::string dir = fresh_folder("header");
  float x[2] = {1, 2};
  write_safetensors(dir + "/a.safetensors", std::vector{view("w", x, kFloat32, {2})});
  std::string all = read_file(dir + "/a.safetensors");
  uint64_t n;
  std::memcpy(&n, all.data(), 8);
  EXPECT_EQ(n % 8, 0u);
  std::string header = all.substr(8, n);
  EXPECT_THAT(header, HasSubstr(R"("w":{"data_offsets":[0,8],"dtype":"F32","shape":[2]})"));
  EXPECT_EQ(all.size(), 8 + n + 8);
  // The header as the reference implementation writes it.
  write_raw(dir + "/hf.safetensors", R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )", all.substr(8 + n));
  EXPECT_EQ(std::memcmp(SafetensorsFile(dir + "/hf.safetensors").bytes("w").data(), x, 8), 0);
}

// The header is composed as text; the JSON library decides on its escapes.
TEST(Safetensors, HeaderIsCanonicalJson) {
  const std::vector<std::string> names{"",
                                       "a\"b",
                                       "a\\b",
                                       "a\nb",
                                       "a\x01"
                                       "b",
                                       "a\x7f"
                                       "b",
                                       "\xc3\xa4",
                                       "a/b",
                                       "~"};
  for (size_t count = 0; count < names.size(); ++count) {
    std::vector<TensorEntry> entries;
    for (size_t i = 1; i <= count; ++i) entries.push_back({names[i], kFloat32, Shape{static_cast<int64_t>(i), 2}});
    for (const Metadata& metadata : {Metadata{}, Metadata{{"k\"", "v\\"}}}) {
      const SafetensorsLayout layout("f", entries, metadata);
      const std::string header = layout.header(0, std::vector<uint32_t>(layout.blocks(), 0xabcdef01)).substr(8);
      const std::string text = header.substr(0, header.find_last_not_of(' ') + 1);
      const OrderedJson json = OrderedJson::parse(text);
      EXPECT_EQ(write_json(json), text);
      EXPECT_EQ(json.size(), 1 + count);
      for (size_t i = 1; i <= count; ++i) {
        EXPECT_EQ(json.at(names[i]).at("shape"), (OrderedJson{i, 2}));
        EXPECT_EQ(json.at("__metadata__").at("crc32c." + names[i]), "abcdef01");
      }
    }
  }
}

TEST(Safetensors, NoTensors) {
  std::string dir = fresh_folder("none");
  write_safetensors(dir + "/a.safetensors", {}, {{"k", "v"}});
  SafetensorsFile f(dir + "/a.safetensors");
  EXPECT_TRUE(f.tensors().empty());
  EXPECT_EQ(f.metadata().at("k"), "v");
}

TEST(Safetensors, DamagedDataIsFoundOnFirstUse) {
  std::string dir = fresh_folder("damage");
  float x[4] = {1, 2, 3, 4}, y[2] = {5, 6};
  write_safetensors(dir + "/a.safetensors", std::vector{view("x", x, kFloat32, {4}), view("y", y, kFloat32, {2})});
  std::string all = read_file(dir + "/a.safetensors");
  all[all.size() - 1] ^= 1;
  write_file_atomic(dir + "/a.safetensors", all);
  SafetensorsFile f(dir + "/a.safetensors");
  EXPECT_EQ(f.bytes("x").size(), 16u);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(error_of([&] { f.bytes("y"); }),
              dir + "/a.safetensors: tensor 'y', bytes 0 to 8: the checksum differs: the file is damaged");
}

constexpr int64_t kBlock = 4 << 20;

// A file with tensor "x" of two blocks and 100 bytes behind tensor "w" of 8 bytes, and its path.
std::string write_blocks(const std::string& dir) {
  std::vector<uint8_t> x(2 * kBlock + 100);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 7 + (i >> 12));
  const double w = 3;
  const auto n = static_cast<int64_t>(x.size());
  write_safetensors(dir + "/a.safetensors", std::vector{view("x", x.data(), kUInt8, {n}), view("w", &w, kFloat64, {})});
  return dir + "/a.safetensors";
}

// Flips a bit `from_end` bytes before the end of a file.
void damage(const std::string& path, size_t from_end) {
  std::string all = read_file(path);
  all[all.size() - from_end] ^= 16;
  write_file_atomic(path, all);
}

TEST(Safetensors, ChecksumsAreOfBlocks) {
  const std::string path = write_blocks(fresh_folder("blocks"));
  const std::string all = read_file(path), x = all.substr(all.size() - 2 * kBlock - 100);
  std::string digits;
  for (const size_t at : {int64_t{0}, kBlock, 2 * kBlock})
    digits += hex64(crc32c(std::string_view(x).substr(at, kBlock))).substr(8);
  EXPECT_THAT(all.substr(0, 1000), HasSubstr(str_cat("\"crc32c.x\":\"", digits, "\"}")));
  EXPECT_EQ(SafetensorsFile(path).metadata(), Metadata{});
}

TEST(Safetensors, ARangeNeedsItsBlocksAlone) {
  const std::string path = write_blocks(fresh_folder("range"));
  const SafetensorsFile whole(path);
  const std::span<const std::byte> data = whole.bytes("x");
  damage(path, 100 + 1);  // the last byte of block 1
  const SafetensorsFile f(path);
  const std::string differs =
      str_cat(path, ": tensor 'x', bytes ", kBlock, " to ", 2 * kBlock, ": the checksum differs: the file is damaged");
  const struct {
    int64_t begin, end;
    bool is_damaged;
  } rows[] = {{0, kBlock, false},
              {kBlock - 1, kBlock, false},
              {kBlock, kBlock, false},
              {kBlock, kBlock + 1, true},
              {kBlock - 1, kBlock + 1, true},
              {2 * kBlock - 1, 2 * kBlock, true},
              {2 * kBlock, 2 * kBlock + 100, false},
              {2 * kBlock + 100, 2 * kBlock + 100, false},
              {0, 2 * kBlock + 100, true}};
  for (int run = 0; run < 2; ++run)  // a second read of a damaged block fails too
    for (const auto& [begin, end, is_damaged] : rows) {
      std::span<const std::byte> got;
      EXPECT_EQ(error_of([&] { got = f.bytes("x", begin, end); }), is_damaged ? differs : "") << begin << " " << end;
      if (is_damaged) continue;
      ASSERT_EQ(static_cast<int64_t>(got.size()), end - begin);
      EXPECT_TRUE(std::ranges::equal(got, data.subspan(begin, got.size()))) << begin;
    }
  EXPECT_EQ(error_of([&] { f.bytes("x"); }), differs);
  EXPECT_EQ(f.bytes("w").size(), 8u);
}

// visit() gives the bytes once, in order, whatever the unit, and finds damage in the blocks that it touches alone.
TEST(Safetensors, AVisitReadsAndVerifies) {
  const std::string path = write_blocks(fresh_folder("visit"));
  const int64_t n = 2 * kBlock + 100;
  const SafetensorsFile whole(path);
  const std::span<const std::byte> data = whole.bytes("x");
  const std::string differs =
      str_cat(path, ": tensor 'x', bytes ", kBlock, " to ", 2 * kBlock, ": the checksum differs: the file is damaged");
  for (const bool damaged : {false, true}) {
    if (damaged) damage(path, 100 + kBlock);  // the first byte of block 1
    for (const auto& [begin, end] : {std::pair{int64_t{0}, kBlock},
                                     {int64_t{5}, int64_t{5}},
                                     {int64_t{3}, kBlock - 1},
                                     {2 * kBlock, n},
                                     {kBlock, 2 * kBlock},
                                     {kBlock, n},
                                     {int64_t{0}, n}})
      for (const int64_t unit : {int64_t{1}, int64_t{7}, int64_t{100'000}, n}) {
        SCOPED_TRACE(str_cat(begin, " to ", end, " by ", unit));
        const SafetensorsFile f(path);
        int64_t at = begin;
        bool equal = true;
        const auto visit = [&] {
          f.visit("x", begin, end, unit, [&](int64_t offset, std::span<const std::byte> part) {
            equal = equal && offset == at && std::ranges::equal(part, data.subspan(at, part.size()));
            at += std::ssize(part);
            EXPECT_TRUE(at == end || std::ssize(part) % unit == 0);
          });
        };
        if (damaged && begin < 2 * kBlock && end > kBlock) {
          EXPECT_EQ(error_of(visit), differs);
        } else {
          visit();
          EXPECT_EQ(at, end);
          EXPECT_TRUE(equal);
        }
      }
  }
}

// A block that a visit has verified is not verified again.
TEST(Safetensors, AVisitVerifiesOnce) {
  const std::string path = write_blocks(fresh_folder("visited"));
  const SafetensorsFile f(path);
  f.visit("x", 0, kBlock, 1, [](int64_t, std::span<const std::byte>) {});
  const int fd = open_for_update(path);
  for (const int64_t block : {0, 1}) ASSERT_EQ(::pwrite(fd, "\xff\0\xff", 3, f.at("x").begin + block * kBlock + 9), 3);
  ::close(fd);
  EXPECT_EQ(f.bytes("x", 0, kBlock).size(), static_cast<size_t>(kBlock));
  EXPECT_THAT(error_of([&] { f.bytes("x", 0, kBlock + 1); }), HasSubstr(str_cat("bytes ", kBlock, " to ")));
}

// Only an access to mapped bytes behind the new end would be a signal.
TEST(Safetensors, AFileThatIsCutIsAnError) {
  const std::string path = write_blocks(fresh_folder("cut"));
  const SafetensorsFile f(path);
  const int64_t size = file_size(path), now = f.at("x").begin + kBlock + 10;
  ASSERT_EQ(::truncate(path.c_str(), now), 0);
  const std::string error = str_cat(path, ": the file had ", size, " bytes when it was opened and has ", now, " now; ");
  std::vector<std::byte> room(kBlock + 100);
  f.read("x", 0, kBlock, room.data());
  EXPECT_EQ(room[3], std::byte{21});
  EXPECT_THAT(error_of([&] { f.read("x", 5, kBlock + 20, room.data()); }), HasSubstr(error));
  for (int run = 0; run < 2; ++run) EXPECT_THAT(error_of([&] { f.bytes("x"); }), HasSubstr(error));
  EXPECT_EQ(f.bytes("x", 0, kBlock).size(), static_cast<size_t>(kBlock));
}

// A block that was read is not read again: later damage of the mapped file is not seen.
TEST(Safetensors, EachBlockIsVerifiedOnce) {
  const std::string path = write_blocks(fresh_folder("once"));
  const SafetensorsFile f(path);
  f.bytes("x", 5, 6);
  const int fd = open_for_update(path);
  for (const int64_t block : {0, 1}) {
    const off_t at = f.at("x").begin + block * kBlock + 9;
    ASSERT_EQ(::pwrite(fd, "\xff\0\xff", 3, at), 3);
  }
  ::close(fd);
  EXPECT_EQ(f.bytes("x", 0, kBlock).size(), static_cast<size_t>(kBlock));
  EXPECT_THAT(error_of([&] { f.bytes("x", 0, kBlock + 1); }), HasSubstr(str_cat("bytes ", kBlock, " to ")));
}

// Threads that meet in a block all get it, or all get the error.
TEST(Safetensors, ThreadsShareABlock) {
  const std::string path = write_blocks(fresh_folder("threads"));
  damage(path, 1);
  const SafetensorsFile f(path);
  std::atomic<int> good{0}, bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (const int64_t at : {int64_t{0}, kBlock, 2 * kBlock})
        ++(error_of([&] { f.bytes("x", at, at + 1); }).empty() ? good : bad);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, 16);
  EXPECT_EQ(bad, 8);
}

// Files of earlier versions: XXH3 of each whole tensor.
TEST(Safetensors, OlderChecksumsAreVerified) {
  const std::string path = fresh_folder("older") + "/a.safetensors", data = "abcdefgh";
  const auto write = [&](const std::string& digits, const std::string& bytes) {
    write_raw(path,
              str_cat(R"({"__metadata__":{"k":"v","xxh3.w":")", digits,
                      R"("},"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})"),
              bytes);
  };
  write(hex64(checksum(data)), data);
  EXPECT_EQ(SafetensorsFile(path).bytes("w", 2, 4).size(), 2u);
  EXPECT_EQ(SafetensorsFile(path).metadata(), (Metadata{{"k", "v"}}));
  write(hex64(checksum(data)), "abcdefgi");
  EXPECT_EQ(error_of([&] { SafetensorsFile(path).bytes("w", 2, 4); }),
            path + ": tensor 'w', bytes 0 to 8: the checksum differs: the file is damaged");
  for (const char* digits : {"", "0123456789abcde", "0123456789abcdefg", "0123456789abcdeg"}) {
    write(digits, data);
    EXPECT_EQ(error_of([&] { SafetensorsFile f(path); }),
              str_cat(path, ": tensor 'w' of 8 bytes has the checksums '", digits,
                      "'; need 16 hexadecimal digits: the file is damaged"));
  }
}

TEST(Safetensors, LyingTablesOfChecksums) {
  const std::string path = write_blocks(fresh_folder("tables")), all = read_file(path);
  const size_t key = all.find("\"crc32c.x\":\"") + 12;
  for (const std::string& digits :
       {std::string(), all.substr(key, 16), all.substr(key, 23), all.substr(key, 24) + "00000000",
        "g" + all.substr(key, 23), " " + all.substr(key, 23), "0x" + all.substr(key, 22), "-" + all.substr(key, 23)}) {
    const std::string header = all.substr(8, key - 8) + digits + all.substr(key + 24, all.find("}}") + 2 - key - 24);
    write_raw(path, header, all.substr(all.size() - 2 * kBlock - 108));
    const std::string text = error_of([&] { SafetensorsFile f(path); });
    EXPECT_EQ(text, str_cat(path, ": tensor 'x' of 8388708 bytes has the checksums '", digits,
                            "'; need 24 hexadecimal digits: the file is damaged"));
  }
}

TEST(Safetensors, WritingRefusesBadInput) {
  std::string dir = fresh_folder("refuse");
  float x[6] = {};
  NamedView transposed{"t", {x, kFloat32, {2, 3}, {1, 2}}};
  std::string path = dir + "/a.safetensors";
  EXPECT_THAT(error_of([&] { write_safetensors(path, std::vector{transposed}); }), HasSubstr("'t' is not contiguous"));
  EXPECT_THAT(error_of([&] {
                write_safetensors(path, std::vector{view("w", x, kFloat32, {2}), view("w", x, kFloat32, {2})});
              }),
              HasSubstr("two tensors are named 'w'"));
  for (const char* key : {"crc32c.w", "xxh3.w"})
    EXPECT_THAT(error_of([&] { write_safetensors(path, {}, {{key, ""}}); }), HasSubstr("is reserved"));
  EXPECT_THAT(error_of([&] { write_safetensors(path, std::vector{view("__metadata__", x, kFloat32, {2})}); }),
              HasSubstr("is not the name of a tensor"));
  EXPECT_TRUE(list_folder(dir).empty());
}

TEST(Safetensors, LyingFiles) {
  std::string path = fresh_folder("lies") + "/a.safetensors";
  auto read = [&](const std::string& header, const std::string& data) {
    write_raw(path, header, data);
    std::string text = error_of([&] { SafetensorsFile f(path); });
    EXPECT_TRUE(text.starts_with(path) || text == "") << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  };
  auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return str_cat("{\"w\":{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", offsets, "}}");
  };
  std::string data(8, 'x');
  EXPECT_EQ(read(entry("F32", "[2]", "[0,8]"), data), "");
  EXPECT_THAT(read(entry("F32", "[3]", "[0,8]"), data), HasSubstr("does not fit its 8 bytes"));
  EXPECT_THAT(read(entry("F32", "[2]", "[0,16]"), data), HasSubstr("cut short or damaged"));
  EXPECT_THAT(read(entry("F32", "[2]", "[8,0]"), data), HasSubstr("cut short or damaged"));
  EXPECT_THAT(read(entry("F32", "[2]", "[-8,0]"), data), HasSubstr("not a whole number"));
  EXPECT_THAT(read(entry("F32", "[2]", "[0,18446744073709551615]"), data), HasSubstr("not a whole number"));
  EXPECT_THAT(read(entry("F32", "[2]", "[0]"), data), HasSubstr("not a pair"));
  EXPECT_THAT(read(entry("F32", "[-2]", "[0,8]"), data), HasSubstr("extent -2 is not"));
  EXPECT_THAT(read(entry("F32", "[1.5]", "[0,8]"), data), HasSubstr("extent 1.5 is not"));
  EXPECT_THAT(read(entry("F32", "\"2\"", "[0,8]"), data), HasSubstr("shape is not a list"));
  EXPECT_THAT(read(entry("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), data), HasSubstr("shape is not a list of at most 8"));
  EXPECT_THAT(read(entry("F32", "[4611686018427387904,4]", "[0,8]"), data), HasSubstr("too many elements"));
  EXPECT_THAT(read(entry("F32", "[9223372036854775807,0]", "[0,0]"), data), HasSubstr("too many elements"));
  EXPECT_THAT(read(entry("F32", "[2,0]", "[0,0]"), data), HasSubstr("8 bytes follow the last tensor"));
  EXPECT_THAT(read(entry("U16", "[4]", "[0,16]"), data), HasSubstr("cut short or damaged"));
  EXPECT_THAT(read(entry("U16", "[4611686018427387904,4]", "[0,8]"), data), HasSubstr("too many elements"));
  EXPECT_THAT(read(entry("", "[2]", "[0,8]"), data), HasSubstr("\"dtype\" is empty; need the name"));
  EXPECT_THAT(read("{\"w\":{\"dtype\":\"F32\"}}", data), HasSubstr("\"shape\" is missing"));
  EXPECT_THAT(read("{\"w\":7}", data), HasSubstr("got number; need an object"));
  EXPECT_THAT(read("{\"w\":{\"dtype\":3}}", data), HasSubstr("\"dtype\" is number; need a string"));
  EXPECT_THAT(read("{}", data), HasSubstr("8 bytes follow the last tensor"));
  EXPECT_THAT(read("[]", ""), HasSubstr("header is not a JSON object"));
  EXPECT_THAT(read("{\"__metadata__\":{\"a\":1}}", ""), HasSubstr("is not a string"));
  EXPECT_THAT(read("{\"__metadata__\":[]}", ""), HasSubstr("__metadata__ is not an object"));
  const std::string b = R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})";
  EXPECT_THAT(read(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)" + b, data),
              HasSubstr("tensors overlap or leave a gap"));
  EXPECT_THAT(read(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)" + b, data),
              HasSubstr("tensors overlap or leave a gap"));
  EXPECT_THAT(read(R"({"a":{},"a":{}})", data), HasSubstr("appears twice"));
  write_file_atomic(path, "abc");
  EXPECT_THAT(error_of([&] { SafetensorsFile f(path); }), HasSubstr("3 bytes are too few"));
  write_file_atomic(path, std::string(16, '\xff'));
  EXPECT_THAT(error_of([&] { SafetensorsFile f(path); }), HasSubstr("the header claims 18446744073709551615 bytes"));
  for (const char* torch_save :
       {"PK\3\4\0\0\x08\x08\0\0", "\x80\2\x8a\x0al\xfc\x9c\x46\xf9 "}) {  // since 1.6, and before
    write_file_atomic(path, std::string(torch_save, 10));
    EXPECT_THAT(error_of([&] { SafetensorsFile f(path); }), HasSubstr("in Python, safetensors.torch.save_file(torch."));
  }
}

// The other tensors of the file are read.
TEST(Safetensors, AnUnknownDtypeIsRefusedWhenItsTensorIsNeeded) {
  const std::string path = fresh_folder("unknown") + "/a.safetensors";
  write_raw(path,
            R"({"a":{"dtype":"U16","shape":[4],"data_offsets":[0,8]},)"
            R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
            "aaaaaaaabcd");
  const SafetensorsFile f(path);
  EXPECT_EQ(std::memcmp(f.bytes("b").data(), "bcd", 3), 0);
  EXPECT_EQ(f.find("a")->unknown, "U16");
  EXPECT_EQ(f.find("b")->unknown, "");
  EXPECT_TRUE(SafetensorsModel(path).contains("a"));
  const std::string sentence =
      path +
      ": tensor 'a' has dtype U16; need one of F32 F64 BF16 F16 I64 I32 I16 I8 U8 BOOL F8_E4M3 F8_E5M2; "
      "convert the tensor before you save it (unsigned integers to I64)";
  EXPECT_EQ(error_of([&] { f.at("a"); }), sentence);
  EXPECT_EQ(error_of([&] { f.bytes("a"); }), sentence);
  EXPECT_EQ(error_of([&] { f.visit("a", 0, 1, 1, [](int64_t, std::span<const std::byte>) {}); }), sentence);
}

TEST(SafetensorsFolder, SplitsAndFindsBack) {
  std::string dir = fresh_folder("folder");
  std::vector<std::vector<float>> data;
  std::vector<NamedView> tensors;
  for (int i = 0; i < 5; ++i) data.push_back(std::vector<float>(10, i));
  for (int i = 0; i < 5; ++i) tensors.push_back(view(str_cat("layer.", i), data[i].data(), kFloat32, {10}));
  write_safetensors_folder(dir, "model", tensors, {{"a", "b"}}, 80);
  EXPECT_THAT(list_folder(dir), ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                            "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  for (const std::string& path : {dir, dir + "/model.safetensors.index.json"}) {
    SafetensorsModel m(path);
    EXPECT_EQ(m.names().size(), 5u);
    EXPECT_EQ(m.files().size(), 3u);
    EXPECT_EQ(m.metadata().at("a"), "b");
    for (int i = 0; i < 5; ++i) EXPECT_EQ(std::memcmp(m.bytes(str_cat("layer.", i)).data(), data[i].data(), 40), 0);
    EXPECT_FALSE(m.contains("x"));
    EXPECT_THAT(error_of([&] { m.at("x"); }), HasSubstr("no tensor 'x' among its 5"));
  }

  std::string one = fresh_folder("one");
  EXPECT_THAT(error_of([&] { SafetensorsModel m(one); }), HasSubstr("holds no .safetensors file"));
  write_safetensors_folder(one, "weights", tensors);
  EXPECT_THAT(list_folder(one), ElementsAre("weights.safetensors"));
  EXPECT_EQ(SafetensorsModel(one).names().size(), 5u);
  EXPECT_EQ(SafetensorsModel(one + "/weights.safetensors").names().size(), 5u);
}

TEST(SafetensorsFolder, LyingIndex) {
  std::string dir = fresh_folder("index");
  float x[1] = {1};
  write_safetensors(dir + "/a.safetensors", std::vector{view("w", x, kFloat32, {1})});
  auto read = [&](const std::string& text) {
    write_file_atomic(dir + "/model.safetensors.index.json", text);
    return error_of([&] { SafetensorsModel m(dir); });
  };
  EXPECT_EQ(read(R"({"weight_map": {"w": "a.safetensors"}})"), "");
  EXPECT_THAT(read(R"({"weight_map": {"v": "a.safetensors"}})"),
              HasSubstr("'a.safetensors' holds tensor 'v', but it does not"));
  EXPECT_THAT(read(R"({"weight_map": {"w": "../a.safetensors"}})"), HasSubstr("need a file in the same folder"));
  EXPECT_THAT(read(R"({"weight_map": {"w": "b.safetensors"}})"), HasSubstr("No such file"));
  EXPECT_THAT(read(R"({"weight_map": {"w": 3}})"), HasSubstr("is not a file name"));
  EXPECT_THAT(read(R"({"weight_map": {}})"), HasSubstr("weight_map is not an object"));
  EXPECT_THAT(read("{}"), HasSubstr("\"weight_map\" is missing"));
  EXPECT_THAT(read("{"), HasSubstr("not valid JSON"));
}

// CPU seconds of this thread.
double cpu_seconds() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Four times the number of tensors takes four times as long, not sixteen times.
TEST(Safetensors, TimeIsLinearInTheNumberOfTensors) {
  const std::string path = fresh_folder("many") + "/many.safetensors";
  const float value = 1;
  const auto seconds = [&](int count) {
    std::vector<NamedView> tensors;
    for (int i = 0; i < count; ++i) tensors.push_back(view(str_cat("t", i), &value, kFloat32, {}));
    double write = 1e9, read = 1e9;
    for (int run = 0; run < 3; ++run) {
      const double begin = cpu_seconds();
      write_safetensors(path, tensors);
      const double middle = cpu_seconds();
      EXPECT_EQ(SafetensorsFile(path).tensors().size(), tensors.size());
      write = std::min(write, middle - begin);
      read = std::min(read, cpu_seconds() - middle);
    }
    return std::pair(write, read);
  };
  const auto [write, read] = seconds(10'000);
  const auto [write4, read4] = seconds(40'000);
  EXPECT_LT(write4, 9 * write);
  EXPECT_LT(read4, 9 * read);
}

}  // namespace
}  // namespace weft::io
