#include "framework/base/thread_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/error.h"

namespace weft {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceForAnySize) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t tasks : {0, 1, 2, 3, 100}) {
      std::vector<int> hits(tasks);
      pool.run(tasks, [&](int64_t i) { ++hits[i]; });
      for (int h : hits) EXPECT_EQ(h, 1);
    }
  }
}

TEST(ThreadPool, ManySmallJobsInARow) {
  ThreadPool pool(3);
  std::vector<int64_t> sums(3);
  for (int round = 0; round < 20000; ++round) pool.run(3, [&](int64_t i) { sums[i] += i; });
  EXPECT_EQ(sums, (std::vector<int64_t>{0, 20000, 40000}));
}

TEST(ThreadPool, WorkersWakeAfterSleeping) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> count{0};
    pool.run(8, [&](int64_t) { ++count; });
    EXPECT_EQ(count, 8);
  }
}

TEST(ThreadPool, LowestFailingTaskIsRethrownAndThePoolLivesOn) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    try {
      pool.run(64, [&](int64_t i) {
        if (i == 37 || i == 21 || i == 60) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "nothing thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "21");
    }
  }
  std::atomic<int> count{0};
  pool.run(10, [&](int64_t) { ++count; });
  EXPECT_EQ(count, 10);
}

TEST(ThreadPool, NestedCallsRunInline) {
  ThreadPool pool(2);
  ScopedPool scope(pool);
  std::atomic<int> count{0};
  parallel_for(4, [&](int64_t) {
    std::thread::id me = std::this_thread::get_id();
    parallel_for(5, [&](int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), me);
      ++count;
    });
  });
  EXPECT_EQ(count, 20);
}

TEST(ThreadPool, SeveralCallersShareOnePool) {
  ThreadPool pool(2);
  std::vector<int64_t> sums(4);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&, c] {
      ScopedPool scope(pool);
      for (int round = 0; round < 500; ++round) {
        std::vector<int64_t> parts(7);
        parallel_for(7, [&](int64_t i) { parts[i] = i; });
        sums[c] += std::accumulate(parts.begin(), parts.end(), int64_t{0});
      }
    });
  for (std::thread& t : callers) t.join();
  for (int64_t s : sums) EXPECT_EQ(s, 500 * 21);
}

TEST(ThreadPool, ScopedPoolIsTheCurrentOneAndNests) {
  ThreadPool one(1), two(2);
  ThreadPool& before = ThreadPool::current();
  {
    ScopedPool a(two);
    EXPECT_EQ(num_threads(), 2);
    {
      ScopedPool b(one);
      EXPECT_EQ(num_threads(), 1);
    }
    EXPECT_EQ(&ThreadPool::current(), &two);
  }
  EXPECT_EQ(&ThreadPool::current(), &before);
}

TEST(ThreadPool, SetNumThreadsResizesTheProcessPool) {
  for (int n : {3, 1, 2}) {
    set_num_threads(n);
    EXPECT_EQ(num_threads(), n);
    std::atomic<int> count{0};
    parallel_for(9, [&](int64_t) { ++count; });
    EXPECT_EQ(count, 9);
  }
  EXPECT_THROW(set_num_threads(0), Error);
  EXPECT_THROW(parallel_for(2, [&](int64_t) { set_num_threads(2); }), Error);
  EXPECT_GE(max_threads(), 1);
}

// The exit status of a child of fork() that calls `fn`; -1 if it has not ended after 20 seconds.
template <class Fn>
int status_of_child(Fn fn) {
  const pid_t child = fork();
  if (child == 0) _exit(fn());
  int status = 0;
  for (int i = 0; i < 2000; ++i) {
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return -1;
}

TEST(ThreadPool, AChildOfForkHasOneThread) {
  set_num_threads(3);
  auto own = std::make_unique<ThreadPool>(4);
  const auto count = [] {
    std::atomic<int> n{0};
    parallel_for(9, [&](int64_t) { ++n; });
    return n.load();
  };
  EXPECT_EQ(count(), 9);
  EXPECT_EQ(status_of_child([&] {
              if (num_threads() != 1 || count() != 9) return 1;
              {
                ScopedPool scope(*own);
                if (num_threads() != 1 || count() != 9) return 2;
              }
              own.reset();
#ifndef __SANITIZE_THREAD__  // it does not know threads that start in a child
              set_num_threads(2);
              if (num_threads() != 2 || count() != 9) return 3;
#endif
              return 0;
            }),
            0);
  // A fork while another thread uses the pool.
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) count();
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(status_of_child([&] { return count() == 9 ? 0 : 1; }), 0);
  stop = true;
  busy.join();
  EXPECT_EQ(num_threads(), 3);
  EXPECT_EQ(count(), 9);
}

// The system refuses a thread whose stack is larger than the address space.
TEST(ThreadPool, AThreadThatDoesNotStartIsAnError) {
  set_num_threads(1);
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  try {
    set_num_threads(3);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "threads: the system started 1 of 3: Resource temporarily unavailable; ask for fewer threads, or raise "
        "a limit (ulimit -u, ulimit -v)");
  }
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  for (int n : {1, 3}) {
    if (n > 1) set_num_threads(n);
    EXPECT_EQ(num_threads(), n);
    std::atomic<int> count{0};
    parallel_for(9, [&](int64_t) { ++count; });
    EXPECT_EQ(count, 9);
  }
}

TEST(ThreadPool, ChunksCoverTheRange) {
  for (int64_t n : {0, 1, 9, 10, 11, 35}) {
    std::vector<int> hits(n);
    parallel_chunks(n, 10, [&](int64_t b, int64_t e) {
      EXPECT_EQ(b % 10, 0);
      for (int64_t i = b; i < e; ++i) ++hits[i];
    });
    for (int h : hits) EXPECT_EQ(h, 1);
  }
}

}  // namespace
}  // namespace weft
