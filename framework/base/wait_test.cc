#include "framework/base/wait.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace weft::internal {
namespace {

TEST(Wait, AThreadDoesNotYieldABusyCoreAgain) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(::sched_getcpu(), &cores);
  std::thread waits([&] {
    ASSERT_EQ(::sched_setaffinity(0, sizeof(cores), &cores), 0);
    std::atomic<bool> works{true};
    std::thread other([&] {  // on the same core
      while (works.load(std::memory_order_relaxed)) {
      }
    });
    bool again = true;
    std::chrono::steady_clock::time_point begin;
    do {  // until this thread has the core for the two calls
      while (yield_core()) {
      }
      begin = std::chrono::steady_clock::now();
      again = yield_core();
    } while (std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(20));
    works = false;
    other.join();
    EXPECT_FALSE(again);
  });
  waits.join();
}

TEST(Wait, AWakeUpEndsASleep) {
  std::atomic<uint32_t> word{0};
  std::thread other([&] {
    word = 1;
    futex_wake(word);
  });
  while (word == 0) futex_wait(word, 0);
  other.join();
}

TEST(Wait, ASleepEndsAtItsTimeout) {
  std::atomic<uint32_t> word{0};
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < begin + std::chrono::milliseconds(5))
    futex_wait(word, 0, std::chrono::milliseconds(5));
  futex_wait(word, 0, std::chrono::nanoseconds(0));
  futex_wait(word, 1);  // another value: no sleep
}

}  // namespace
}  // namespace weft::internal
