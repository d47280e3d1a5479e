// The readers of npy, npz, IDX and CSV on files as the programs that define them write them.
#include <cmath>
#include <cstring>
#include <filesystem>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/zlib.h"
#include "framework/testing/compare.h"
#include "models/data/readers/csv.h"
#include "models/data/readers/idx.h"
#include "models/data/readers/npy.h"
#include "models/data/testing/archive.h"
#include "ops/core/core.h"

namespace weft::data {
namespace {

using testing::expect_error;
using testing::same_bits;

std::string written(const char* name, std::string_view bytes) {
  const std::string path = ::testing::TempDir() + "/" + name;
  io::write_file_atomic(path, bytes);
  return path;
}
template <class T>
std::string raw(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

TEST(Npy, IsWhatNumpyWrites) {
  // np.save of np.array([[1, 2, 3], [4, 5, 6]], dtype): header and bytes of NumPy 1.24.
  auto load = [](const char* descr, const char* order, const char* shape, std::string_view data) {
    return load_npy(written("a.npy", npy_bytes(descr, order, shape, data)));
  };
  const Tensor want = arange(1, 7).view({2, 3});
  EXPECT_TRUE(same_bits(load("<i8", "False", "(2, 3)", raw<int64_t>({1, 2, 3, 4, 5, 6})), want));
  EXPECT_TRUE(same_bits(load("<i8", "True", "(2, 3)", raw<int64_t>({1, 4, 2, 5, 3, 6})), want));
  EXPECT_TRUE(
      same_bits(load(">i2", "False", "(2, 3)", std::string_view("\0\1\0\2\0\3\0\4\0\5\0\6", 12)), want.to(kInt16)));
  EXPECT_TRUE(same_bits(load("|i1", "False", "(1,)", "\xff"), full({1}, -1, {.dtype = kInt8})));
  EXPECT_TRUE(same_bits(load("<u4", "False", "(1,)", "\xff\xff\xff\xff"), full({1}, 4294967295L, {.dtype = kInt64})));
  EXPECT_TRUE(same_bits(load("<f4", "False", "()", raw<float>({2.5f})), full({}, 2.5)));
  EXPECT_TRUE(same_bits(load("<f8", "False", "(0, 3)", ""), zeros({0, 3}, {.dtype = kFloat64})));
  expect_error(
      [&] { load("<f4", "False", "(0, 9223372036854775807, 9223372036854775807)", ""); },
      "a.npy: shape [0, 9223372036854775807, 9223372036854775807] has too many elements; need fewer than 2^58");
  EXPECT_EQ(load("|b1", "False", "(3,)", std::string_view("\0\1\7", 3)).to_vector<int>(), (std::vector<int>{0, 1, 1}));
  // Python 2 marks long integers.
  EXPECT_TRUE(same_bits(load("<i8", "False", "(2L, 3L)", raw<int64_t>({1, 2, 3, 4, 5, 6})), want));
  for (const auto& [descr, kind] :
       {std::pair("<U5", "texts ('<U5')"), std::pair("|S3", "texts ('|S3')"), std::pair("|O", "Python objects ('|O')"),
        std::pair("<M8[ns]", "dates or times"), std::pair("<c8", "complex numbers")})
    expect_error([&] { load(descr, "False", "(1,)", std::string(40, '\0')); }, str_cat("a.npy: is an array of ", kind));
  const std::string text = "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }";
  expect_error(
      [&] {
        load_npy(written("a.npy", str_cat("\x93NUMPY\1", std::string(1, '\0'), static_cast<char>(text.size()),
                                          std::string(1, '\0'), text, "1234")));
      },
      "a.npy: is an array of records, whose elements have named fields; need numbers or bools");
}

TEST(Npy, WritesWhatItReads) {
  const std::string path = ::testing::TempDir() + "/b.npy";
  for (DType t : {kFloat64, kFloat32, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool})
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{0, 2}, Shape{2, 3, 4}}) {
      const Tensor x = ne(arange(shape.numel()).view(shape) - 2, 0).to(t) *
                       (t == kBool ? Tensor(ones({}, {.dtype = kBool})) : full({}, 3, {.dtype = t}));
      save_npy(x, path);
      EXPECT_TRUE(same_bits(load_npy(path), x)) << x.type();
      EXPECT_EQ((io::file_size(path) - x.type().nbytes()) % 64, 0);
    }
  save_npy(transpose(arange(6).view({2, 3}), 0, 1), path);
  EXPECT_EQ(load_npy(path).to_vector<int>(), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  expect_error([&] { save_npy(ones({2}, {.dtype = kBFloat16}), path); },
               "save_npy: got bf16[2], which is no dtype of NumPy");
}

TEST(Npz, ReadsStoredAndDeflatedEntries) {
  const std::string a = npy_bytes("<i8", "False", "(2,)", raw<int64_t>({1, 2})),
                    b = npy_bytes("<f4", "False", "(50, 40)", std::string(8000, '\0'));
  for (bool deflated : {false, true}) {
    const auto arrays = load_npz(written("c.npz", npz_bytes({{"a.npy", a}, {"b.npy", b}}, deflated)));
    ASSERT_EQ(arrays.size(), 2u);
    EXPECT_TRUE(same_bits(arrays.at("a"), arange(1, 3)));
    EXPECT_TRUE(same_bits(arrays.at("b"), zeros({50, 40})));
  }
  EXPECT_TRUE(load_npz(written("c.npz", npz_bytes({}, false))).empty());
  expect_error(
      [&] {
        load_npz(written("c.npz", npz_bytes({{"a.npy", a}, {"notes.txt", "text"}}, false)));
      },
      "c.npz: entry 'notes.txt' has no name NAME.npy, so it is no array");
  std::string damaged = npz_bytes({{"a.npy", a}}, false);
  damaged[damaged.find("NUMPY") + 130] ^= 1;
  expect_error([&] { load_npz(written("d.npz", damaged)); }, "d.npz: entry 'a.npy' is damaged: its checksum differs");
}

TEST(Idx, ReadsImagesAndLabels) {
  const std::string header("\0\0\x08\2\0\0\0\2\0\0\0\3", 12), data("\1\2\3\4\5\xff", 6);
  const Tensor want = Tensor::from_vector<uint8_t>({1, 2, 3, 4, 5, 255}, {2, 3});
  EXPECT_TRUE(same_bits(read_idx(written("i.idx", header + data)), want));
  EXPECT_TRUE(same_bits(read_idx(written("i.idx.gz", io::gzip_compress(header + data))), want));
  EXPECT_EQ(read_idx(written("f.idx", std::string("\0\0\x0d\1\0\0\0\1\x3f\x80\0\0", 12))).item<float>(), 1);
  expect_error([&] { read_idx(written("g.idx", header)); },
               "g.idx: shape [2, 3] of 1-byte elements needs 6 bytes; got 0");
  expect_error([&] { read_idx(written("h.idx", "text")); }, "h.idx: is not an IDX file");
  const std::string huge("\0\0\x0e\3\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16);
  expect_error([&] { read_idx(written("j.idx", huge)); }, "needs 9223372036854775807 bytes; got 0");
}

TEST(Csv, GivesTensorsOfItsColumns) {
  const Csv t = read_csv(written(
      "t.csv", "\xef\xbb\xbfid, x ,kind,empty\r\n1,0.5,cat,\r\n-2,1e400,\"a, \"\"b\"\"\",3\r\n\r\n+3,nan,cat,4\n"));
  EXPECT_EQ(t.names, (std::vector<std::string>{"id", "x", "kind", "empty"}));
  EXPECT_EQ(t.rows, 3);
  EXPECT_TRUE(same_bits(t["id"], Tensor::from_vector<int64_t>({1, -2, 3}, {3})));
  const std::vector<float> x = t["x"].to_vector<float>();
  EXPECT_TRUE(x[0] == 0.5f && std::isinf(x[1]) && std::isnan(x[2]));
  EXPECT_EQ(t["kind"].to_vector<int>(), (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(t.categories.at("kind"), (std::vector<std::string>{"cat", "a, \"b\""}));
  EXPECT_EQ(t.categories.size(), 1u);
  EXPECT_TRUE(std::isnan(t["empty"].to_vector<float>()[0]));
  EXPECT_EQ(t.matrix({"id", "x"}).type(), (TensorType{kFloat32, Device::cpu(), {3, 2}}));
  const Csv bare = read_csv(written("u.csv", "1;2.5\n3;4.5"), {.delimiter = ';', .header = false, .dtype = kFloat64});
  EXPECT_EQ(bare.matrix().to_vector<double>(), (std::vector<double>{1, 2.5, 3, 4.5}));
  EXPECT_EQ(bare["1"].dtype(), kFloat64);
  EXPECT_EQ(read_csv(written("v.csv", "a,b\n")).rows, 0);
  EXPECT_TRUE(read_csv(written("v.csv", ""), {.header = false}).names.empty());
  EXPECT_EQ(read_csv(written("v.csv", "a,b\n1,\n2,")).rows, 2);
  for (const char* end : {"\n", "\r\n", "\r"}) {
    const auto lines = [&](const char* last) { return str_cat("a,b", end, "1,\"2\"", end, "3,4", last); };
    for (const char* last : {end, ""}) {
      const Csv table = read_csv(written("v.csv", lines(last)));
      EXPECT_EQ(table.names, (std::vector<std::string>{"a", "b"}));
      EXPECT_EQ(table.matrix().to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
    }
  }
}

TEST(Csv, MissingValuesAreNaN) {
  // The texts for which pandas.read_csv gives NaN, and '?'.
  for (const char* missing : {"", "\"\"", "NA", "N/A", "null", "NULL", "nan", "NaN", "None", "<NA>", "#N/A", "?"}) {
    SCOPED_TRACE(missing);
    const Csv t =
        read_csv(written("m.csv", str_cat("a,b,c\n1,2,x\n", missing, ",", missing, ",", missing, "\n3,4,y\n")));
    EXPECT_EQ(t["a"].dtype(), kFloat32);
    const std::vector<float> a = t["a"].to_vector<float>();
    EXPECT_TRUE(a[0] == 1 && std::isnan(a[1]) && a[2] == 3);
    EXPECT_EQ(t["c"].to_vector<int>(), (std::vector<int>{0, -1, 1}));
    EXPECT_EQ(t.categories.size(), 1u);
  }
  const Csv t = read_csv(written("m.csv", "a,b\n1,2\nx,\n1,5\n"), {.categories = {"a"}});
  EXPECT_EQ(t["a"].to_vector<int>(), (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(t.categories.at("a"), (std::vector<std::string>{"1", "x"}));
}

TEST(Csv, ErrorsNameTheLine) {
  auto error = [](const char* text, const std::string& want) {
    expect_error([&] { read_csv(written("w.csv", text)); }, want);
  };
  error("a,b\n1,2\n3\n", "w.csv:3: got 1 fields; need 2 as in the first line");
  error("a,b\n1,2\n\n3,x1\n",
        "w.csv:4: column 'b' has 'x1' here and the number 2 in line 2; need numbers, or categories: {.categories = "
        "{\"b\"}}");
  expect_error([] { read_csv(written("w.csv", "a\n1\n"), {.categories = {"b"}}); },
               "w.csv: there is no column 'b' for .categories; need names of columns");
  error("a,a\n", "w.csv:1: two columns are named 'a'; need different names, or .header = false");
  error("a\n\"x\ny\"z\n", "w.csv:2: there is text after the quoted field 'x?y'");
  error("a\n\n\"x", "w.csv:3: a quoted field does not end");
  error("a,b\r\"1\r\n\r\",2\r3\r", "w.csv:5: got 1 fields; need 2 as in the first line");
  for (const char* text : {"", "\xef\xbb\xbf", "\n\r\n"})
    error(text, "w.csv: is empty; need a line with the names of the columns, or .header = false");
  expect_error([] { read_csv(written("w.csv", "a\n"))["b"]; }, "Csv: there is no column 'b'; need one of a");
  expect_error([] { read_csv("/nowhere.csv"); }, "/nowhere.csv");
}

// A sparse file of 1 TiB has no blocks on the disk.
TEST(Readers, RefuseFilesThatAreTooLarge) {
  const std::string path = written("sparse", "");
  std::filesystem::resize_file(path, int64_t{1} << 40);
  expect_error([&] { load_npy(path); }, "cannot read '" + path + "': it is larger than 68719476736 bytes");
  const std::string want = "cannot read '" + path + "': it is larger than 4294967296 bytes";
  expect_error([&] { load_npz(path); }, want);
  expect_error([&] { read_csv(path); }, want);
  expect_error([&] { read_idx(path); }, want);
}

}  // namespace
}  // namespace weft::data
