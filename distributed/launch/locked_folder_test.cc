#include "distributed/launch/locked_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "framework/io/mark.h"

namespace weft::dist {
namespace {

namespace fs = std::filesystem;

TEST(LockedFolder, RemovesWhatAKilledOwnerLeft) {
  const std::string parent = new_folder(temporary_parent(), "locked-"), left = new_folder(parent, "job-"),
                    live = new_folder(parent, "job-");
  // A name alone proves nothing, and neither does a mark of another name.
  const std::string others[] = {parent + "/job-run1",   parent + "/job-abc123", parent + "/job-abcdef-more",
                                parent + "/job-abc12_", parent + "/kept-1",     parent + "/job-moved1"};
  for (const std::string& d : others) fs::create_directories(d + "/checkpoints");
  io::set_mark(others[0], "job-run1");
  io::set_mark(others[5], fs::path(left).filename());
  const int fd = open(live.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // its owner lives
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  std::string first;
  {
    const LockedFolder mine(parent, "job-"), second(parent, "job-");
    first = mine.path();
    EXPECT_TRUE(fs::exists(mine.path()));
    EXPECT_TRUE(fs::exists(second.path()));
    EXPECT_NE(mine.path(), second.path());
    EXPECT_FALSE(fs::exists(left));
  }
  EXPECT_FALSE(fs::exists(first));
  EXPECT_TRUE(fs::exists(live));
  for (const std::string& d : others) EXPECT_TRUE(fs::exists(d + "/checkpoints")) << d;
  close(fd);
  fs::remove_all(parent);
}

TEST(LockedFolder, KeepsTheNewest) {
  const std::string parent = new_folder(temporary_parent(), "locked-");
  fs::create_directories(parent + "/kept-run123");
  std::string made[5];
  for (int i = 0; i < 5; ++i) {
    made[i] = new_folder(parent, "kept-");
    fs::last_write_time(made[i], fs::file_time_type::clock::now() - std::chrono::hours(9 - i));
  }
  remove_left(parent, "kept-", 3);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(fs::exists(made[i]), i >= 2) << i;
  EXPECT_TRUE(fs::exists(parent + "/kept-run123"));
  fs::remove_all(parent);
}

TEST(LockedFolder, LeavesAnotherFolderOfItsName) {
  std::string path;
  {
    const LockedFolder mine(temporary_parent(), "locked-");
    path = mine.path();
    fs::rename(path, path + "-moved");
    fs::create_directories(path + "/of-another");
  }
  EXPECT_TRUE(fs::exists(path + "/of-another"));
  fs::remove_all(path), fs::remove_all(path + "-moved");
}

TEST(LockedFolder, HasNoPathWhereNoneCanBeMade) {
  EXPECT_EQ(LockedFolder("/proc", "job-").path(), "");
  EXPECT_EQ(LockedFolder("/nonexistent/folder", "job-").path(), "");
}

TEST(LockedFolder, MovesWithItsLock) {
  LockedFolder a(temporary_parent(), "locked-");
  const std::string path = a.path();
  LockedFolder b;
  b = std::move(a);
  EXPECT_EQ(b.path(), path);
  LockedFolder(temporary_parent(), "locked-");  // removes only folders of dead owners
  EXPECT_TRUE(fs::exists(path));
}

}  // namespace
}  // namespace weft::dist
