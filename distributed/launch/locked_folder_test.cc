#include "distributed/launch/locked_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

namespace weft::dist {
namespace {

namespace fs = std::filesystem;

TEST(LockedFolder, RemovesWhatAKilledOwnerLeft) {
  const std::string parent = new_folder(temporary_parent(), "locked-"), left = parent + "/job-left",
                    live = parent + "/job-live", other = parent + "/kept-1";
  for (const std::string& d : {left, live, other}) fs::create_directories(d);
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
  EXPECT_TRUE(fs::exists(other));
  close(fd);
  fs::remove_all(parent);
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
