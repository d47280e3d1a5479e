// Event files against the format: lengths, checksums, messages.
#include "models/train/event_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "models/train/metrics.h"

namespace weft::train {
namespace {

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T v;
  EXPECT_LE(at + sizeof v, bytes.size());
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}

// The messages of a file without their times, which are the first 9 bytes.
std::vector<std::string> messages_of(const std::string& path) {
  const std::string bytes = io::read_file(path);
  std::vector<std::string> out;
  for (size_t at = 0; at < bytes.size();) {
    const auto size = number_at<uint64_t>(bytes, at);
    EXPECT_EQ(number_at<uint32_t>(bytes, at + 8), masked_crc32c(bytes.substr(at, 8)));
    const std::string message = bytes.substr(at + 12, size);
    EXPECT_EQ(number_at<uint32_t>(bytes, at + 12 + size), masked_crc32c(message));
    EXPECT_EQ(message[0], 9);  // field 1, 64 bits
    out.push_back(message.substr(9));
    at += 16 + size;
  }
  return out;
}

std::string bytes_of(std::initializer_list<int> v) { return {v.begin(), v.end()}; }

TEST(EventFile, ChecksumIsCrc32c) {
  EXPECT_EQ(masked_crc32c("123456789"), std::rotr(0xe3069283u, 15) + 0xa282ead8u);  // the check value of the code
}

TEST(EventFile, ContainsTheMessagesOfScalars) {
  const std::string folder = std::string(::testing::TempDir()) + "/events";
  std::string path;
  {
    EventFile file(folder, 300);
    path = file.path();
    file.scalar("a/b", 1.5, 300);
    file.write({.step = 7, .loss = 2});
    file.write({.step = 7, .loss = 3});  // made again
  }
  const std::vector<std::string> got = messages_of(path);
  ASSERT_EQ(got.size(), 7u);
  EXPECT_EQ(got[0], bytes_of({16, 0, 26, 13}) + "brain.Event:2");
  EXPECT_EQ(got[1], bytes_of({16, 172, 2, 58, 2, 8, 1}));  // step 300, session_log { status: START }
  EXPECT_EQ(got[2], bytes_of({16, 172, 2, 42, 12, 10, 10, 10, 3}) + "a/b" + bytes_of({21, 0, 0, 192, 63}));
  EXPECT_EQ(got[3], bytes_of({16, 7, 42, 19, 10, 17, 10, 10}) + "train/loss" + bytes_of({21, 0, 0, 0, 64}));
  EventFile next(folder, 0);
  EXPECT_NE(next.path(), path);
  EventFile none;
  none.scalar("a", 1, 1);
  testing::expect_error([&] { EventFile(path, 0); }, path);
}

}  // namespace
}  // namespace weft::train
