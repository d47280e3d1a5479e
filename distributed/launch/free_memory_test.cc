// Memory that is left, from files of the kernel.
#include "distributed/launch/free_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "distributed/launch/held_memory.h"

namespace weft::dist {
namespace {

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(FreeMemory, OfTheHostAndOfAllGroups) {
  const std::string proc = ::testing::TempDir() + "/proc", groups = ::testing::TempDir() + "/cgroup";
  const auto free = [&] { return free_memory(proc, groups); };
  EXPECT_EQ(free(), -1);
  write(proc + "/meminfo", "MemTotal:  9000 kB\nMemAvailable:  1000 kB\n");
  EXPECT_EQ(free(), 1024000);

  write(proc + "/self/cgroup", "0::/slice/job\n");
  EXPECT_EQ(free(), 1024000) << "no files of groups";
  write(groups + "/slice/job/memory.max", "max\n");
  write(groups + "/slice/job/memory.current", "5000\n");
  EXPECT_EQ(free(), 1024000);
  write(groups + "/slice/job/memory.max", "9000\n");
  EXPECT_EQ(free(), 4000);
  write(groups + "/slice/job/memory.stat", "anon 4000\ninactive_file 1000\nactive_file 7\n");
  EXPECT_EQ(free(), 5000);
  write(groups + "/slice/memory.max", "8000\n");
  write(groups + "/slice/memory.current", "7500\n");
  EXPECT_EQ(free(), 500) << "the group outside";
  write(groups + "/memory.max", "100\n");
  write(groups + "/memory.current", "120\n");
  EXPECT_EQ(free(), 0) << "the group of a container";

  write(proc + "/self/cgroup", "4:cpu,cpuacct:/a\n3:memory:/a\n1:name=systemd:/a\n");
  EXPECT_EQ(free(), 1024000);
  write(groups + "/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  write(groups + "/memory/a/memory.usage_in_bytes", "5000\n");
  EXPECT_EQ(free(), 1024000);
  write(groups + "/memory/memory.limit_in_bytes", "6000\n");
  write(groups + "/memory/memory.usage_in_bytes", "5000\n");
  write(groups + "/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 300\n");
  EXPECT_EQ(free(), 1300);
}

TEST(FreeMemory, OfThisHost) {
  EXPECT_GT(free_memory(), 0);
  EXPECT_GE(host_memory(), free_memory());
}

TEST(HostMemory, IsTheSmallestLimitAndSwap) {
  const std::string proc = ::testing::TempDir() + "/proc_of_host", groups = ::testing::TempDir() + "/cgroup_of_host";
  const auto memory = [&] { return host_memory(proc, groups); };
  EXPECT_EQ(memory(), -1);
  write(proc + "/meminfo", "MemTotal:  9000 kB\nMemAvailable:  1000 kB\n");
  EXPECT_EQ(memory(), 9216000);
  write(proc + "/meminfo", "MemTotal:  9000 kB\nMemAvailable:  1000 kB\nSwapTotal:  10 kB\n");
  EXPECT_EQ(memory(), 9226240);
  write(proc + "/self/cgroup", "0::/job\n");
  write(groups + "/job/memory.max", "5000000\n");
  write(groups + "/job/memory.current", "4000000\n");
  EXPECT_EQ(memory(), 5010240);
}

TEST(HeldMemory, CountsItsBytesAndSaysWhyItHasNone) {
  {
    const HeldMemory held(2);
    EXPECT_EQ(held.refused(), "");
    EXPECT_EQ(HeldMemory::bytes(held.path()), 0);
    std::ofstream(HeldMemory::file(held.path(), 1)) << std::string(100000, 'x');
    EXPECT_GE(HeldMemory::bytes(held.path()), 100000);
    EXPECT_LT(HeldMemory::bytes(held.path()), 4 << 20);
  }
  EXPECT_EQ(HeldMemory(0).refused(), "");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const HeldMemory many(100);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(many.path(), "");
  EXPECT_EQ(many.refused(), "memfd_create: Too many open files");
}

}  // namespace
}  // namespace weft::dist
