#include "distributed/comm/store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::dist {
namespace {

std::string new_folder() {
  const char* const parent = std::getenv("TEST_TMPDIR");
  std::string path = str_cat(parent ? parent : "/tmp", "/store-XXXXXX");
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return path;
}

Store::Deadline now() { return std::chrono::steady_clock::now(); }

TEST(FolderStore, AValueThatCannotBeWrittenIsNotSet) {
  const std::string folder = new_folder();
  FolderStore store(folder);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit none{0, before.rlim_max};  // acts like a full disk
  setrlimit(RLIMIT_FSIZE, &none);
  std::string error;
  try {
    store.set("service", "127.0.0.1:29500");
  } catch (const Error& e) {
    error = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(error.find(str_cat("store: cannot write ", folder, "/service: File too large")), 0u) << error;
  EXPECT_THROW(store.get("service", now()), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST(FolderStore, ARemovedKeyIsNotSet) {
  const std::string folder = new_folder();
  FolderStore store(folder);
  store.set("a/b", "1");
  EXPECT_EQ(store.get("a/b", now()), "1");
  store.remove("a/b");
  store.remove("a/b");
  EXPECT_THROW(store.get("a/b", now()), Error);
  store.set("a/b", "2");
  EXPECT_EQ(store.get("a/b", now()), "2");
  std::filesystem::remove_all(folder);
}

// A process that waits learns why the job has ended.
TEST(FolderStore, TheEndOfTheJobEndsAWait) {
  const std::string folder = new_folder();
  FolderStore store(folder);
  store.check();
  std::thread launcher([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    FolderStore(folder).set(FolderStore::kEnded, "rank 1 died");
  });
  std::string causes[2];
  try {
    store.get("service", now() + std::chrono::seconds(60));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kAborted);
    causes[0] = e.what();
  }
  launcher.join();
  try {
    store.check();
  } catch (const Error& e) {
    causes[1] = e.what();
  }
  for (const std::string& cause : causes) EXPECT_EQ(cause, "rank 1 died");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::dist
