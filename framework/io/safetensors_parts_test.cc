// The bytes of a set of files do not depend on its parts. They equal the bytes of a plain writer of the format. The
// files are in memory and on a disk, with mappings and without.
#include "framework/io/safetensors_parts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <thread>

#include "framework/base/testing/error_of.h"
#include "framework/base/thread_pool.h"
#include "framework/io/checksum.h"
#include "framework/io/crc32c.h"
#include "framework/io/testing/faults.h"

namespace weft::io {
namespace {

using ::testing::ElementsAre;
using testing::Fault;
using ::testing::HasSubstr;
using testing::set_fault;
using ::testing::StartsWith;
using weft::testing::error_of;

constexpr int64_t kBlock = 4 << 20;
using Random = std::mt19937_64;

class Parts : public ::testing::Test {
 protected:
  void SetUp() override { folders_ = {testing::fast_folder(), ::testing::TempDir() + "/parts"}; }
  void TearDown() override {
    set_fault("");
    for (const std::string& folder : folders_) remove_all(folder);
  }
  // An empty folder: in memory, or on the disk of tests.
  std::string fresh(bool in_memory) {
    const std::string& folder = folders_[in_memory ? 0 : 1];
    remove_all(folder);
    make_folders(folder);
    return folder;
  }
  std::vector<std::string> folders_;
};

struct Value {
  TensorEntry entry;
  std::string bytes;
};

Value random_value(std::string name, DType dtype, const Shape& shape, Random& random) {
  Value v{{std::move(name), dtype, shape}, std::string(static_cast<size_t>(shape.numel() * itemsize(dtype)), 0)};
  for (char& c : v.bytes) c = static_cast<char>(random());
  return v;
}

std::vector<TensorEntry> entries_of(const std::vector<Value>& values) {
  std::vector<TensorEntry> entries;
  for (const Value& v : values) entries.push_back(v.entry);
  return entries;
}

// The bytes of a file, by the description of the format in safetensors.h alone.
std::string reference(std::vector<Value> values, const std::string& metadata) {
  static constexpr const char* kDTypes[] = {"F32", "F64", "BF16", "F16",  "I64",     "I32",
                                            "I16", "I8",  "U8",   "BOOL", "F8_E4M3", "F8_E5M2"};
  std::stable_sort(values.begin(), values.end(),
                   [](const Value& a, const Value& b) { return itemsize(a.entry.dtype) > itemsize(b.entry.dtype); });
  std::map<std::string, std::string> sums, entries;
  std::string data;
  for (const Value& v : values) {
    const auto& [name, dtype, shape] = v.entry;
    for (size_t at = 0; at < v.bytes.size(); at += kBlock)
      sums[name] += hex64(crc32c(std::string_view(v.bytes).substr(at, kBlock))).substr(8);
    sums[name];
    std::string extents;
    for (const int64_t n : shape) extents += str_cat(extents.empty() ? "" : ",", n);
    entries[name] = str_cat("\"", name, "\":{\"data_offsets\":[", data.size(), ",", data.size() + v.bytes.size(),
                            "],\"dtype\":\"", kDTypes[static_cast<int>(dtype)], "\",\"shape\":[", extents, "]}");
    data += v.bytes;
  }
  std::string header = "{\"__metadata__\":{" + metadata;
  std::string_view comma = metadata.empty() ? "" : ",";
  for (const auto& [name, digits] : sums) {
    header += str_cat(comma, "\"crc32c.", name, "\":\"", digits, "\"");
    comma = ",";
  }
  header += "}";
  for (const auto& [name, text] : entries) header += "," + text;
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

// Elements of a tensor with their own memory.
struct OwnPiece {
  size_t tensor = 0;
  TensorPart part;
  std::string bytes;
};

OwnPiece piece_of(const std::vector<Value>& values, size_t tensor, TensorPart part) {
  const auto& [name, dtype, shape] = values[tensor].entry;
  const auto item = static_cast<size_t>(itemsize(dtype));
  OwnPiece p{tensor, std::move(part), {}};
  p.bytes.resize(static_cast<size_t>(p.part.shape().numel()) * item);
  each_run(p.part, shape, [&](const ElementRun& r) {
    std::memcpy(p.bytes.data() + static_cast<size_t>(r.part) * item,
                values[tensor].bytes.data() + static_cast<size_t>(r.whole) * item, static_cast<size_t>(r.count) * item);
  });
  return p;
}

// Writes a part for each list of pieces, in a thread each if `at_once`; returns the files by name.
std::map<std::string, std::string> written(const SafetensorsLayout& layout, const std::string& folder,
                                           const std::vector<std::vector<OwnPiece>>& parts, bool one_host,
                                           bool at_once = false) {
  SafetensorsFiles files(layout, folder);
  std::vector<std::vector<uint32_t>> all(parts.size());
  const auto write = [&](size_t part) {
    std::vector<TensorPiece> pieces;
    for (const OwnPiece& p : parts[part]) pieces.push_back({p.tensor, p.part, p.bytes.data()});
    all[part] = write_parts(layout, files.paths(), pieces, one_host);
  };
  std::vector<std::thread> threads;
  for (size_t part = 0; part < parts.size(); ++part)
    if (at_once)
      threads.emplace_back(write, part);
    else
      write(part);
  for (std::thread& t : threads) t.join();
  std::vector<uint32_t> shares(layout.blocks());
  for (const std::vector<uint32_t>& own : all)
    for (size_t b = 0; b < own.size(); ++b) shares[b] ^= own[b];
  files.commit(shares);
  std::map<std::string, std::string> texts;
  for (const std::string& name : list_folder(folder)) texts[name] = read_file(folder + "/" + name);
  return texts;
}

// Cuts a tensor along a dim into ranges that belong to parts in turn, and most ranges again along a further dim.
void cut(const std::vector<Value>& values, size_t tensor, TensorPart part, Random& random,
         std::vector<std::vector<OwnPiece>>& parts) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < part.dims.size(); ++d)
    if (part.dims[d].size() == 1 && part.dims[d][0].second - part.dims[d][0].first > 1) dims.push_back(d);
  if (dims.empty() || random() % 4 == 0) {
    parts[random() % parts.size()].push_back(piece_of(values, tensor, std::move(part)));
    return;
  }
  const size_t d = dims[random() % dims.size()];
  const auto [begin, end] = part.dims[d][0];
  const int64_t step = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>((end - begin + 1) / 2));
  std::vector<IndexRanges> shares(1 + random() % 3);
  for (int64_t i = begin, k = 0; i < end; i += step, ++k)
    add_range(shares[static_cast<size_t>(k) % shares.size()], i, std::min(end, i + step));
  for (IndexRanges& share : shares) {
    if (share.empty()) continue;
    TensorPart own = part;
    own.dims[d] = std::move(share);
    cut(values, tensor, std::move(own), random, parts);
  }
}

TEST_F(Parts, AnyCutGivesTheBytesOfOneWriter) {
  Random random(1);
  for (int run = 0; run < 60; ++run) {
    SCOPED_TRACE(str_cat("run ", run));
    std::vector<Value> values;
    for (int i = 0; i < 8; ++i) {
      Shape shape;
      for (uint64_t d = random() % 4; d > 0; --d) shape.push_back(static_cast<int64_t>(random() % 40));
      values.push_back(random_value(str_cat("t", i), static_cast<DType>(random() % kNumDTypes), shape, random));
    }
    // Two blocks and a bit, in ranges of 3 KiB or rows of 96 KiB.
    const Shape large = run % 2 ? Shape{30, 96 << 10 >> 2, 1} : Shape{2800, 3, 256};
    if (run % 10 < 2) values.push_back(random_value("large", kFloat32, large, random));
    std::shuffle(values.begin(), values.end(), random);
    std::vector<std::vector<OwnPiece>> parts(1 + random() % 5);
    for (size_t t = 0; t < values.size(); ++t) cut(values, t, TensorPart::all(values[t].entry.shape), random, parts);
    const SafetensorsLayout layout("m.safetensors", entries_of(values), {{"format", "pt"}});
    const auto files = written(layout, fresh(run % 3), parts, run % 7 != 0, run % 2);
    ASSERT_EQ(files.size(), 1u);
    ASSERT_TRUE(files.at("m.safetensors") == reference(values, R"("format":"pt")"));
    ASSERT_EQ(layout.size(0), std::ssize(files.at("m.safetensors")));
  }
}

TEST_F(Parts, SeveralFilesHaveAnIndex) {
  Random random(2);
  std::vector<Value> values;
  for (int i = 0; i < 5; ++i) values.push_back(random_value(str_cat("t", i), i % 2 ? kInt8 : kFloat64, {40}, random));
  const SafetensorsLayout layout("w.safetensors", entries_of(values), {}, 400);
  std::vector<std::vector<OwnPiece>> parts(3);
  for (size_t t = 0; t < values.size(); ++t) cut(values, t, TensorPart::all({40}), random, parts);
  const auto files = written(layout, fresh(true), parts, true);
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files.at("w-00001-of-00003.safetensors"), reference({values[0], values[1]}, ""));
  EXPECT_EQ(files.at("w-00002-of-00003.safetensors"), reference({values[2], values[3]}, ""));
  EXPECT_EQ(files.at("w-00003-of-00003.safetensors"), reference({values[4]}, ""));
  const std::string& index = files.at("w.safetensors.index.json");
  EXPECT_THAT(index, HasSubstr("\"total_size\": 1040"));
  EXPECT_THAT(index, HasSubstr("\"t3\": \"w-00002-of-00003.safetensors\""));
}

// On NFS, a byte of the first process could arrive after the data of another host, and replace them.
TEST_F(Parts, MakingTheFilesWritesNoData) {
  Random random(4);
  for (const int64_t n : {0, 1, 5, 100'000}) {
    const std::string folder = fresh(true);
    const SafetensorsLayout layout("m.safetensors", entries_of({random_value("t", kInt8, {n}, random)}), {});
    set_fault(folder);
    const SafetensorsFiles files(layout, folder);
    EXPECT_GT(testing::written_end(), 1);  // it shows that the file system writes at an offset
    EXPECT_LE(testing::written_end(), layout.tensors()[0].info.begin);
    EXPECT_EQ(std::ssize(read_file(files.paths()[0])), layout.size(0));
  }
}

TEST_F(Parts, AHostWithoutTheFileIsOneSentence) {
  const std::string folder = fresh(true);
  Random random(5);
  const Value v = random_value("t", kInt8, {5}, random);
  const SafetensorsLayout layout("m.safetensors", entries_of({v}), {});
  std::vector<std::string> paths;
  {
    const SafetensorsFiles files(layout, folder);
    paths = files.paths();
  }
  EXPECT_EQ(error_of([&] {
              write_parts(layout, paths, {{0, TensorPart::all({5}), v.bytes.data()}}, false);
            }),
            str_cat("cannot write '", folder, "/m.safetensors': No such file or directory; the first process made it: ",
                    "need a folder that all hosts share"));
  EXPECT_TRUE(list_folder(folder).empty());
}

// Processes may have other working directories.
TEST_F(Parts, PathsAreAbsolute) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::string folder = fresh(true);
  std::filesystem::current_path(folder);
  {
    const SafetensorsLayout layout("m.safetensors", {}, {});
    const SafetensorsFiles files(layout, "");
    EXPECT_THAT(files.paths(), ElementsAre(StartsWith(folder + "/m.safetensors.tmp-")));
  }
  std::filesystem::current_path(before);
}

// If a name repeated on another host, a process there could write to another file.
TEST_F(Parts, TemporaryNamesDifferBetweenRuns) {
  const std::string path = fresh(true) + "/m";
  const AtomicFile file(path);
  EXPECT_GT(std::stoll(file.temporary().substr(file.temporary().rfind('-') + 1)), 1'000'000) << file.temporary();
}

// The two halves of the columns of a matrix: ranges of 768 bytes.
struct Halves {
  explicit Halves(int64_t rows) {
    Random random(3);
    values.push_back(random_value("w", kFloat32, {rows, 384}, random));
    for (const int64_t c : {0, 192}) parts.push_back({piece_of(values, 0, {{{{0, rows}}, {{c, c + 192}}}})});
    layout.emplace("m.safetensors", entries_of(values), Metadata{});
  }
  std::vector<Value> values;
  std::vector<std::vector<OwnPiece>> parts;
  std::optional<SafetensorsLayout> layout;
};

TEST_F(Parts, ShortRangesAreNotWrittenOneByOne) {
  const Halves h(1000);
  const std::string folder = fresh(true);
  const struct {
    bool one_host;
    Fault fault;
    int64_t at, least, most;                              // calls
  } rows[] = {{true, Fault::kKill, -1, 1, 40},            // mapped
              {false, Fault::kKill, -1, 2000, 2040},      // several hosts may have bytes of a page
              {true, Fault::kNoReserve, 0, 2000, 2040}};  // a full disk would be a signal
  for (const auto& [one_host, fault, at, least, most] : rows) {
    set_fault(folder, at, fault);
    EXPECT_TRUE(written(*h.layout, folder, h.parts, one_host).at("m.safetensors") == reference(h.values, ""));
    EXPECT_GE(testing::total_calls(), least);
    EXPECT_LE(testing::total_calls(), most);
  }
  // Parts of one process, as ranks that are threads, are joined before they are written.
  const std::vector<OwnPiece> both{h.parts[0][0], h.parts[1][0]};
  set_fault(folder);
  EXPECT_TRUE(written(*h.layout, folder, {both}, false).at("m.safetensors") == reference(h.values, ""));
  EXPECT_LE(testing::total_calls(), 40);
}

TEST_F(Parts, AFailingCallIsOneSentenceAndLeavesNothing) {
  const Halves h(100);
  const std::string folder = fresh(true);
  set_fault(folder);
  written(*h.layout, folder, h.parts, true);
  const int64_t calls = testing::total_calls();
  for (const Fault fault : {Fault::kNoSpace, Fault::kShortWrite, Fault::kBroken})
    for (int64_t at = 0; at < calls; ++at) {
      const std::string path = fresh(true) + "/m.safetensors";
      set_fault(folder, at, fault);
      const std::string text = error_of([&] { written(*h.layout, folder, h.parts, true); });
      set_fault("");
      const bool done = exists(path);
      // The rename is the last call but one; kShortWrite lets the first call happen that is no write.
      EXPECT_EQ(done, at >= calls - (fault == Fault::kShortWrite ? 2 : 1)) << at << " of " << calls;
      EXPECT_EQ(text.empty(), fault == Fault::kShortWrite && at == calls - 1);
      EXPECT_EQ(list_folder(folder).size(), done ? 1u : 0u);
      if (done) {
        EXPECT_TRUE(read_file(path) == reference(h.values, ""));
      } else {
        EXPECT_THAT(text, HasSubstr(str_cat("cannot write '", path, "': ")));
      }
    }
  set_fault(folder, 0, Fault::kNoOffsets);
  EXPECT_EQ(error_of([&] { SafetensorsFiles(*h.layout, folder); }),
            str_cat("cannot write '", folder,
                    "/m.safetensors': its file system does not write at an offset (Operation "
                    "not supported); need one that does, such as a local disk or NFS"));
}

// A store to a page without space for all of its blocks would end the process by SIGBUS.
TEST_F(Parts, SpaceIsReservedForWholePages) {
  const Halves h(5000);
  const int64_t page = ::sysconf(_SC_PAGESIZE), size = h.layout->size(0);
  ASSERT_NE(size % page, 0);
  const std::string folder = fresh(true);
  set_fault(folder);
  EXPECT_TRUE(written(*h.layout, folder, h.parts, true).at("m.safetensors") == reference(h.values, ""));
  int64_t last = 0;
  EXPECT_EQ(testing::reserved().size(), 4u);  // two blocks for each process
  for (const auto& [begin, end] : testing::reserved()) {
    EXPECT_EQ(begin % page, 0);
    EXPECT_TRUE(end % page == 0 || end == size) << end;
    last = std::max(last, end);
  }
  EXPECT_EQ(last, size);
}

// Mounts a file system in memory that this process alone sees. False: this system does not permit it.
bool mount_for_me(const std::string& folder, const char* options) {
  const auto user = static_cast<int64_t>(::getuid()), group = static_cast<int64_t>(::getgid());
  if (::unshare(CLONE_NEWNS) != 0) {  // root alone may
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    const std::pair<const char*, std::string> ids[] = {
        {"setgroups", "deny"}, {"uid_map", str_cat("0 ", user, " 1")}, {"gid_map", str_cat("0 ", group, " 1")}};
    for (const auto& [name, text] : ids) {
      const int fd = ::open(str_cat("/proc/self/", name).c_str(), O_WRONLY);
      if (::write(fd, text.data(), text.size()) < 0) return false;
      ::close(fd);
    }
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", folder.c_str(), "tmpfs", 0, options) == 0;
}

// A store to a mapping of a full disk would end the process by SIGBUS.
TEST_F(Parts, AFullDiskIsNoSignal) {
  const Halves h(2000);  // 3 MB
  const std::string folder = fresh(false);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!mount_for_me(folder, "size=1m")) ::_exit(77);
    const std::string text = error_of([&] { written(*h.layout, folder, h.parts, true); });
    ::_exit(text == str_cat("cannot write '", folder, "/m.safetensors': No space left on device") &&
                    list_folder(folder).empty()
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this system permits no mount";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A writer beside a program may sleep often, also within a block.
TEST_F(Parts, PausesAreShort) {
  Random random(3);
  const std::vector<Value> values{random_value("a", kFloat32, {5 << 18}, random),  // 5 MiB
                                  random_value("b", kUInt8, {(128 << 10) + 1}, random)};
  const SafetensorsLayout layout("m.safetensors", entries_of(values), {});
  const SafetensorsFiles files(layout, fresh(true));
  std::vector<TensorPiece> pieces;
  for (size_t i = 0; i < values.size(); ++i)
    pieces.push_back({i, TensorPart::all(values[i].entry.shape), values[i].bytes.data()});
  ThreadPool alone(1);
  const ScopedPool use(alone);
  int64_t pauses = 0;
  write_parts(layout, files.paths(), pieces, true, [&] { ++pauses; });
  EXPECT_EQ(pauses, 5 * 8 + 2);
}

TEST_F(Parts, PiecesDoNotOverlap) {
  Halves h(100);
  h.parts[0].push_back(piece_of(h.values, 0, {{{{7, 8}}, {{191, 193}}}}));
  EXPECT_THAT(error_of([&] { written(*h.layout, fresh(true), h.parts, true); }),
              HasSubstr("pieces of a tensor overlap"));
}

}  // namespace
}  // namespace weft::io
