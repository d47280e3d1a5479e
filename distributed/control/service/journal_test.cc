#include "distributed/control/service/journal.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"

namespace weft::control {
namespace {

using weft::testing::error_of;
using weft::testing::expect_has;

/// The records that a journal with these bytes gives, as "one two ".
std::string records_of(const std::string& path, const std::string& bytes) {
  io::write_file_atomic(path, bytes);
  std::string all;
  Journal journal(path, "title", [&](const std::string& record) { return all += record + " ", ""; });
  return all;
}

TEST(Journal, DamageInTheMiddleIsNoIncompleteEnd) {
  const std::string path = ::testing::TempDir() + "/journal_test";
  io::write_file_atomic(path, "");
  {
    Journal journal(path, "title", [](const std::string&) { return ""; });
    for (const char* record : {"one", "two", "three"}) journal.append(record);
  }
  const std::string file = io::read_file(path);
  EXPECT_EQ(records_of(path, file), "one two three ");
  EXPECT_EQ(records_of(path, file.substr(0, file.size() - 3)), "one two ");
  EXPECT_EQ(records_of(path, file.substr(0, file.size() - 20)), "one two ");  // a part of the head is left
  EXPECT_EQ(records_of(path, file + std::string(100, '\0')), "one two three ");
  const size_t two = file.find("two");
  std::string damaged = file;
  damaged[two] = 'T';
  expect_has(error_of([&] { records_of(path, damaged); }), "is damaged at byte ");
  for (size_t byte = 0; byte < 4; ++byte) {  // the size, which begins 16 bytes before
    damaged = file;
    damaged[two - 16 + byte] = '\x7f';
    expect_has(error_of([&] { records_of(path, damaged); }), str_cat("is damaged at byte ", two - 16));
  }
}

TEST(Journal, AnotherFileIsLeftAsItIs) {
  const std::string path = ::testing::TempDir() + "/journal_foreign_test";
  for (const std::string text : {"my notes\n", "x", "title"}) {
    expect_has(error_of([&] { records_of(path, text); }), "is no journal of a coordination service; need another path");
    EXPECT_EQ(io::read_file(path), text);
  }
}

// A disk that is full in the middle of the third record.
TEST(Journal, AFailedWriteKeepsAHistory) {
  const std::string path = ::testing::TempDir() + "/journal_full_test";
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  for (const bool keeps_history : {false, true}) {
    io::write_file_atomic(path, "");
    {
      Journal journal(
          path, "title", [](const std::string&) { return ""; }, keeps_history);
      journal.append("one");
      journal.append("two");
      const struct rlimit full { static_cast<rlim_t>(io::file_size(path)) + 5, before.rlim_max };
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
      journal.append("three");
      journal.append("four");
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    }
    EXPECT_EQ(records_of(path, io::read_file(path)), keeps_history ? "one two " : "");
  }
}

}  // namespace
}  // namespace weft::control
