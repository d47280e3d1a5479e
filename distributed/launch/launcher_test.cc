#include "distributed/launch/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "framework/base/str_cat.h"

namespace weft::dist {
namespace {

using std::chrono::seconds;

std::string temporary(const std::string& name) {
  const char* const folder = std::getenv("TEST_TMPDIR");
  return str_cat(folder ? folder : "/tmp", "/", name);
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Outcome {
  int code = 0;
  std::string out, error;
  double seconds = 0;
};

// Launches a script in a child of the test, so that its output is a file.
Outcome run(int processes, const std::string& script, const std::function<void(pid_t)>& meanwhile = {}) {
  const std::string out = temporary("out"), error = temporary("error");
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    setenv("JOB_FLIGHT", temporary("flight").c_str(), 1);  // a killed launcher removes nothing
    _exit(launch({.processes = processes, .command = {"/bin/sh", "-c", script}, .name = "job"}).code);
  }
  if (meanwhile) meanwhile(pid);
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), content(out), content(error),
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Launcher, GivesRanksTheirNumbersAndPrefixes) {
  const Outcome o = run(3, "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE; test -d $JOB_STORE");
  EXPECT_EQ(o.code, 0) << o.error;
  for (const char* line : {"0 of 3, 0 of 3\n", "rank 1: 1 of 3, 1 of 3\n", "rank 2: 2 of 3, 2 of 3\n"})
    EXPECT_TRUE(has(o.out, line)) << o.out;
  EXPECT_EQ(o.error, "");
}

TEST(Launcher, EndsTheOthersAndNamesTheFailure) {
  const Outcome o = run(3, "if [ $RANK = 1 ]; then echo no weights >&2; exit 3; fi; exec sleep 60");
  EXPECT_EQ(o.code, 3);
  EXPECT_LT(o.seconds, 20);
  const std::string last = o.error.substr(o.error.rfind('\n', o.error.size() - 2) + 1);
  EXPECT_TRUE(last.starts_with("job: rank 1 (pid ")) << o.error;
  EXPECT_TRUE(has(last, "exited with code 3; its last message: no weights")) << o.error;
}

TEST(Launcher, ShowsALineOfAllRanksOnce) {
  const Outcome o = run(3, R"(sleep 0.$RANK; echo warning: old file >&2
                              printf "fails no such mesh" > $JOB_FAILURE_REPORT; echo job: no such mesh >&2; exit 2)");
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.error, "warning: old file\njob: no such mesh\n");
}

TEST(Launcher, EndsAStoppedProcessAtOnce) {
  const Outcome o = run(2, R"(if [ $RANK = 1 ]; then kill -STOP $$; fi; sleep 0.5
                              printf "follows x" > $JOB_FAILURE_REPORT; echo rank 1 is stopped >&2; exit 1)");
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(has(o.error, "its last message: rank 1 is stopped")) << o.error;
}

TEST(Launcher, NamesASignal) {
  const Outcome o = run(2, "if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 0.2; echo peer died >&2; exit 1");
  EXPECT_EQ(o.code, 137);
  EXPECT_TRUE(has(o.error, "job: rank 1 (pid ")) << o.error;
  EXPECT_TRUE(has(o.error, "was killed by signal 9 (Killed)")) << o.error;
}

TEST(Launcher, AFailureThatFollowsIsNotTheCulprit) {
  const Outcome o = run(2, R"(if [ $RANK = 0 ]; then printf "follows x" > $JOB_FAILURE_REPORT; exit 1; fi
                              sleep 0.5; printf "fails disk" > $JOB_FAILURE_REPORT; exit 7)");
  EXPECT_EQ(o.code, 7);
  EXPECT_TRUE(has(o.error, "job: rank 1 (pid ")) << o.error;
}

TEST(Launcher, PassesASignalOnOnce) {
  const std::string marks = temporary("marks");
  std::filesystem::remove(marks);
  const Outcome o = run(
      2, str_cat("trap 'echo x >> ", marks, "; exit 130' INT; echo up >> ", marks, "; while :; do sleep 0.05; done"),
      [&](pid_t pid) {
        while (content(marks) != "up\nup\n") std::this_thread::sleep_for(std::chrono::milliseconds(10));
        kill(pid, SIGINT);
      });
  EXPECT_EQ(o.code, 130);
  EXPECT_EQ(content(marks), "up\nup\nx\nx\n");
  EXPECT_EQ(o.error, "");
}

// The launcher gets a signal while nobody reads its output.
TEST(Launcher, PassesASignalOnWhileItsOutputIsFull) {
  for (const char* to : {"1", "2"}) {
    int out[2];
    ASSERT_EQ(pipe(out), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(30);
      for (const int fd : {1, 2}) dup2(out[1], fd);
      _exit(launch({.processes = 2, .command = {"/bin/sh", "-c", str_cat("exec yes >&", to)}, .name = "job"}).code);
    }
    for (int unread = 0, before = -1; unread == 0 || unread != before;) {
      before = unread;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ASSERT_EQ(ioctl(out[0], FIONREAD, &unread), 0);
    }
    kill(pid, SIGTERM);
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
    for (const int fd : out) close(fd);
  }
}

TEST(Launcher, EndsStoppedProcessesWithASignal) {
  const std::string pids = temporary("stopped");
  std::filesystem::remove(pids);
  const Outcome o =
      run(2, str_cat("trap 'exit 7' TERM; echo $$ >> ", pids, "; while :; do sleep 0.05; done"), [&](pid_t launcher) {
        const auto both = [&] {
          const std::string text = content(pids);
          return std::count(text.begin(), text.end(), '\n') == 2;
        };
        while (!both()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::ifstream file(pids);
        for (pid_t pid; file >> pid;) kill(pid, SIGSTOP);
        kill(launcher, SIGTERM);
        alarm(30);
      });
  alarm(0);
  EXPECT_EQ(o.code, 7);
}

TEST(Launcher, LeavesNoProcessBehind) {
  const std::string pids = temporary("pids");
  std::filesystem::remove(pids);
  const auto lines = [&] {
    const std::string text = content(pids);
    return std::count(text.begin(), text.end(), '\n');
  };
  run(2, str_cat("echo $$ >> ", pids, "; exec sleep 300"), [&](pid_t pid) {
    while (lines() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(pid, SIGKILL);
  });
  std::ifstream file(pids);
  for (pid_t pid; file >> pid;) {
    int left = 500;
    while (kill(pid, 0) == 0 && left-- > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_GT(left, 0) << pid;
  }
}

TEST(Launcher, NamesAProgramThatDoesNotExist) {
  const std::string error = temporary("error");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    _exit(launch({.processes = 1, .command = {"/no/such/program"}, .name = "job"}).code);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 127);
  EXPECT_TRUE(has(content(error), "cannot start /no/such/program: No such file or directory")) << content(error);
}

}  // namespace
}  // namespace weft::dist
