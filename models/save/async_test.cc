// A save is held in the middle by a fault of the disk, so no test depends on time. The first three calls for a file
// make it; the fourth is the thread's.
#include "models/save/async.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/testing/faults.h"
#include "framework/tensor/storage.h"
#include "models/nn/layers/linear.h"
#include "models/optim/optimizers/adamw.h"
#include "models/save/save.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using io::testing::Fault;
using testing::expect_error;
using testing::expect_has;

constexpr int64_t kThread = 3;

class Async : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = io::testing::fast_folder();
    ASSERT_NE(folder_, "");
    path_ = folder_ + "/a.safetensors";
  }
  void TearDown() override {
    io::testing::set_fault("");
    io::remove_all(folder_);
  }
  std::vector<float> saved() { return load(path_).at("w").to_vector<float>(); }

  std::string folder_, path_;
};

int64_t entries(const std::string& folder) {
  using Entries = std::filesystem::directory_iterator;
  return std::distance(Entries(folder), Entries());
}

// The threads of this process that use the disk when nobody else does.
std::vector<int> idle_threads() {
  constexpr int kOneThread = 1, kClass = 13, kIdle = 3;
  std::vector<int> ids;
  for (const std::string& id : io::list_folder("/proc/self/task"))
    if (::syscall(SYS_ioprio_get, kOneThread, std::stoi(id)) >> kClass == kIdle) ids.push_back(std::stoi(id));
  return ids;
}

TEST_F(Async, ValuesAreThoseOfTheCall) {
  const Parameter w(ones({4}), "w");
  io::testing::set_fault(folder_, kThread, Fault::kHold);
  PendingSave saved_w = save_async(nn::StateDict{{"w", w.value()}}, path_);
  io::testing::wait_for_hold();
  w.set(zeros({4}));
  EXPECT_FALSE(saved_w.done());
  EXPECT_FALSE(io::exists(path_));
  io::testing::release();
  saved_w.wait();
  EXPECT_TRUE(saved_w.done());
  EXPECT_EQ(saved(), std::vector<float>(4, 1));
  saved_w.wait();  // again: nothing is left to do
  EXPECT_EQ(io::list_folder(folder_).size(), 1u);
}

TEST_F(Async, FilesAreThoseOfSave) {
  const nn::Linear model(3, 5);
  const optim::AdamW optimizer(model.parameters());
  const nn::StateDict values = model.state_dict();
  const auto same = [&](const auto& what) {
    save(what, folder_ + "/b.safetensors");
    save_async(what, path_).wait();
    EXPECT_TRUE(io::read_file(path_) == io::read_file(folder_ + "/b.safetensors"));
  };
  same(model);
  same(optimizer);
  same(values);
}

TEST_F(Async, APathHasOneSaveAtATime) {
  const nn::StateDict values{{"w", ones({4})}};
  io::testing::set_fault(folder_, kThread, Fault::kHold);
  PendingSave first = save_async(values, path_);
  io::testing::wait_for_hold();
  const std::string again = folder_ + "/./a.safetensors", need = ": an earlier save is writing this file; need its end";
  expect_error([&] { save(values, again); }, again + need);
  expect_error([&] { (void)save_async(values, again); }, again + need);
  io::testing::release();
  first.wait();
  save(nn::StateDict{{"w", zeros({4})}}, path_);
  EXPECT_EQ(saved(), std::vector<float>(4, 0));
}

TEST_F(Async, AnErrorComesAtTheEnd) {
  const nn::StateDict values{{"w", ones({4})}};
  io::testing::set_fault(folder_, kThread, Fault::kNoSpace);
  {
    PendingSave full = save_async(values, path_);
    expect_has(testing::placed_error_of([&] { full.wait(); }),
               path_ + "': No space left on device; at models/save/async_test.cc:");
  }
  EXPECT_EQ(io::list_folder(folder_).size(), 0u);
  io::testing::set_fault("");
  expect_error([&] { (void)save_async(values, folder_ + "/none/a"); }, "No such file or directory");
}

TEST_F(Async, AHandleWaitsWhenItIsDestroyed) {
  (void)save_async(nn::StateDict{{"w", ones({4})}}, path_);
  EXPECT_EQ(saved(), std::vector<float>(4, 1));
  io::testing::set_fault(folder_, kThread, Fault::kNoSpace);
  ::testing::internal::CaptureStderr();
  (void)save_async(nn::StateDict{{"w", zeros({4})}}, path_);
  expect_has(::testing::internal::GetCapturedStderr(), path_ + "': No space left on device");
  EXPECT_EQ(saved(), std::vector<float>(4, 1));
}

TEST_F(Async, TheThreadYieldsUntilTheProgramWaits) {
  io::testing::set_fault(folder_, kThread, Fault::kHold);
  PendingSave save = save_async(nn::StateDict{{"w", ones({4})}}, path_);
  io::testing::wait_for_hold();
  while (idle_threads().size() != 1) std::this_thread::yield();  // the threads of earlier saves end
  const int thread = idle_threads()[0];
  EXPECT_EQ(::getpriority(PRIO_PROCESS, static_cast<id_t>(thread)), 19);
  const std::string status = io::read_file(str_cat("/proc/self/task/", thread, "/status"));
  const uint64_t blocked = std::stoull(status.substr(status.find("SigBlk:") + 7), nullptr, 16);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) EXPECT_TRUE(blocked >> (signal - 1) & 1) << signal;
  std::thread waits([&] { save.wait(); });
  while (!idle_threads().empty()) std::this_thread::yield();
  io::testing::release();
  waits.join();
}

TEST_F(Async, ManySavesLeakNothing) {
  const Parameter w(ones({300, 100}), "w");
  const int64_t threads = entries("/proc/self/task");
  const auto all = [&] { return std::pair{entries("/proc/self/fd"), Allocator::of(Device::cpu()).stats().live}; };
  std::pair<int64_t, int64_t> before;
  for (int i = 0; i < 100; ++i) {
    PendingSave save = save_async(nn::StateDict{{"w", w.value()}}, path_);
    w.set(full({300, 100}, i));
    save.wait();
    if (i == 0) before = all();
  }
  EXPECT_EQ(all(), before);
  while (entries("/proc/self/task") > threads) std::this_thread::yield();  // a thread that was joined may not be gone
}

}  // namespace
}  // namespace weft
