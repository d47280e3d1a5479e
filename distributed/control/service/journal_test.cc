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

TEST(Journal, SaysThatTheLastRecordIsIncomplete) {
  const std::string path = ::testing::TempDir() + "/journal_torn_test";
  io::write_file_atomic(path, "");
  {
    Journal journal(path, "title", [](const std::string&) { return ""; });
    for (const char* record : {"one", "two"}) journal.append(record);
  }
  const std::string file = io::read_file(path);
  const auto said = [&](const std::string& bytes) {
    ::testing::internal::CaptureStderr();
    (void)records_of(path, bytes);
    return ::testing::internal::GetCapturedStderr();
  };
  const auto line = [&](const char* what, int64_t bytes) {
    return str_cat("weft: the journal ", path, " ends in ", what, ", which is incomplete: its ", bytes,
                   " bytes are left out\n");
  };
  EXPECT_EQ(said(file), "");
  EXPECT_EQ(said(file.substr(0, file.size() - 1)), line("record 2", 18));
  std::string damaged = file;
  damaged.back() = 'O';
  EXPECT_EQ(said(damaged), line("record 2", 19));
  EXPECT_EQ(said(file + std::string(7, '\0')), line("record 3", 7));
  EXPECT_EQ(said(file.substr(0, 9)), line("its title", 9));
  // A reader says the same, and leaves the file.
  io::write_file_atomic(path, damaged);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(read_journal(path, [](const std::string&) { return ""; }), "title");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), line("record 2", 19));
  EXPECT_EQ(io::read_file(path), damaged);
}

TEST(Journal, ANewRunReplacesOnlyTheJournalOfAnEarlierOne) {
  const std::string path = ::testing::TempDir() + "/journal_new_test";
  const auto begin = [&](const std::string& title) {
    bool any = false;
    const Journal journal(
        path, title, [&](const std::string&) { return any = true, ""; }, true, "job 'a', ");
    return any || journal.continued() ? "continued" : "begun";
  };
  const auto write = [&](const std::string& title) {
    io::write_file_atomic(path, "");
    Journal(path, title, [](const std::string&) { return ""; }).append("one");
    return io::read_file(path);
  };
  write("job 'a', 2 replicas");
  EXPECT_EQ(begin("job 'a', 3 replicas"), "begun");
  EXPECT_EQ(read_journal(path, [](const std::string&) { return "a record is left"; }), "job 'a', 3 replicas");
  const std::string other = write("job 'b', 2 replicas");
  expect_has(error_of([&] { begin("job 'a', 2 replicas"); }), "is 'job 'b', 2 replicas'; need 'job 'a', 2 replicas'");
  EXPECT_EQ(io::read_file(path), other);
  io::write_file_atomic(path, "my notes\n");
  expect_has(error_of([&] { begin("job 'a', 2 replicas"); }), "is no journal of a coordination service");
  EXPECT_EQ(io::read_file(path), "my notes\n");
  const Journal in_use(str_cat(path, "2"), "job 'a', 2 replicas", [](const std::string&) { return ""; });
  expect_has(error_of([&] {
               const Journal second(
                   str_cat(path, "2"), "job 'a', 2 replicas", [](const std::string&) { return ""; }, true, "job 'a', ");
             }),
             "is in use by another coordination service");
  expect_has(error_of([] {
               const Journal folder(
                   ::testing::TempDir(), "title", [](const std::string&) { return ""; }, true, "t");
             }),
             "cannot be opened");
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
