// For tests: child processes that run one function each, and their exit codes.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/error.h"

namespace weft::testing {

/// A new empty folder.
inline std::string new_folder() {
  const char* const parent = std::getenv("TEST_TMPDIR");
  std::string path = std::string(parent ? parent : "/tmp") + "/weft-XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return path;
}

class Processes {
 public:
  /// Forks `n` children; child i runs fn(i). It fails if it throws or one of its expectations fails. The caller must
  /// have no threads.
  Processes(int n, const std::function<void(int)>& fn) {
    std::fflush(nullptr);
    for (int i = 0; i < n; ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int code = 2;
        const int before = failures();
        try {
          fn(i);
          code = failures() > before ? 1 : 0;
        } catch (const std::exception& e) {
          std::printf("child %d: %s\n", i, e.what());
        }
        std::fflush(nullptr);
        _exit(code);
      }
      pids_.push_back(pid);
      status_.push_back(-1);
    }
  }
  ~Processes() {
    for (size_t i = 0; i < pids_.size(); ++i)
      if (status_[i] < 0) {
        ::kill(pids_[i], SIGKILL);
        waitpid(pids_[i], nullptr, 0);
      }
  }
  Processes(const Processes&) = delete;

  pid_t pid(int i) const { return pids_[i]; }
  void signal(int i, int number) const { ::kill(pids_[i], number); }

  /// Waits up to `seconds` for all children; returns their exit codes, such as "0 0 signal 9". "running" is a child
  /// that has not ended.
  std::string wait(double seconds = 30) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::string text;
    for (size_t i = 0; i < pids_.size(); ++i) {
      while (status_[i] < 0 && waitpid(pids_[i], &status_[i], WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > end) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (i) text += " ";
      if (status_[i] < 0)
        text += "running";
      else if (WIFSIGNALED(status_[i]))
        text += "signal " + std::to_string(WTERMSIG(status_[i]));
      else
        text += std::to_string(WEXITSTATUS(status_[i]));
    }
    return text;
  }

 private:
  static int failures() {
    const auto* result = ::testing::UnitTest::GetInstance()->current_test_info()->result();
    int n = 0;
    for (int i = 0; i < result->total_part_count(); ++i) n += result->GetTestPartResult(i).failed();
    return n;
  }

  std::vector<pid_t> pids_;
  std::vector<int> status_;
};

}  // namespace weft::testing
