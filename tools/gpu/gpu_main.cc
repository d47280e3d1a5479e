// main() of unattended tests on a GPU: a test that hangs or loses the device ends the process and its name is printed.
// check.sh then runs the remaining tests in a new process. Exit code 77: there is no GPU (under check.sh).
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "framework/base/error.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/libraries/driver_api.h"

namespace weft {
namespace {

class TestWatch : public ::testing::EmptyTestEventListener {
 public:
  explicit TestWatch(int seconds) : seconds_(seconds) {
    std::thread([test = test_] {
      for (;; std::this_thread::sleep_for(std::chrono::milliseconds(100)))
        if (const int64_t end = test->end; end && now() > end)
          leave(*test, "still running after its time: it hangs", 71);
    }).detach();
  }
  void OnTestStart(const ::testing::TestInfo& info) override {
    test_->name = std::string(info.test_suite_name()) + "." + info.name();
    test_->end = now() + 1000 * seconds_;
  }
  void OnTestEnd(const ::testing::TestInfo& info) override {
    if (info.result()->Failed() && cuda::availability().ok) {  // the device keeps an asynchronous fault
      try {
        cuda::Gpu::get(0).synchronize();
      } catch (const std::exception& e) {
        leave(*test_, e.what(), 70);
      }
    }
    test_->end = 0;
  }

 private:
  struct Test {
    std::string name;
    std::atomic<int64_t> end{0};  // in ms; 0: no test runs
  };
  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  static void leave(const Test& test, const char* why, int code) {
    std::printf("%s\n[  FAILED  ] %s (ended the process)\n", why, test.name.c_str());
    std::fflush(stdout);
    _exit(code);
  }
  const int seconds_;
  const std::shared_ptr<Test> test_ = std::make_shared<Test>();  // the thread outlives the listener
};

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (std::getenv("WEFT_GPU_CHECK")) {
    if (const auto& cuda = weft::cuda::availability(); !cuda.ok) {
      std::fprintf(stderr, "skipped: %s\n", cuda.why.c_str());
      return 77;
    }
    const char* limit = std::getenv("WEFT_GPU_TEST_SECONDS");
    ::testing::UnitTest::GetInstance()->listeners().Append(new weft::TestWatch(limit ? std::atoi(limit) : 90));
  }
  return RUN_ALL_TESTS();
}
