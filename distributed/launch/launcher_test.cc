#include "distributed/launch/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
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
Outcome run(int processes, const std::string& script, const std::function<void(pid_t)>& meanwhile = {},
            const RestartOptions& restarts = {}) {
  const std::string out = temporary("out"), error = temporary("error");
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    setenv("JOB_FLIGHT", temporary("flight").c_str(), 1);  // a killed launcher removes nothing
    _exit(launch({.processes = processes, .command = {"/bin/sh", "-c", script}, .name = "job", .restarts = restarts})
              .code);
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
  // Each rank writes after the rank before it.
  const Outcome o = run(3, R"(while [ $RANK != 0 ] && [ ! -e $JOB_STORE/turn$RANK ]; do sleep 0.02; done
                              echo warning: old file >&2; touch $JOB_STORE/turn$((RANK + 1))
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

// A rank that compiles or reads for seconds sees neither the store nor a heartbeat: the launcher ends it.
TEST(Launcher, AStoppedProcessIsTheCauseIfTheOthersAreEndedWithASignal) {
  for (const int64_t restarts : {0, 1}) {
    const Outcome o = run(2, "if [ $RANK = 1 ]; then kill -STOP $$; fi; exec sleep 60", {}, {.most = restarts});
    EXPECT_EQ(o.code, 1);
    EXPECT_FALSE(has(o.error, "signal 15")) << o.error;
    EXPECT_EQ(has(o.error, "job: starting again, 0 restarts left\n"), restarts == 1) << o.error;
    const std::string last = o.error.substr(o.error.rfind('\n', o.error.size() - 2) + 1);
    EXPECT_TRUE(last.starts_with("job: stopped: rank 1 (host ")) << o.error;
  }
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

// Restarts: each start appends a line to the file "starts", whose lines are also the committed steps.
struct LauncherRestarts : ::testing::Test {
  LauncherRestarts() { std::filesystem::remove(starts); }
  static int64_t lines(const std::string& path) {
    const std::string text = content(path);
    return std::count(text.begin(), text.end(), '\n');
  }
  // Rank 1 of two counts its start and runs `script`; SIGTERM does not end rank 0, but the file "done".
  Outcome run_two(const std::string& script, const RestartOptions& o) {
    std::filesystem::remove(done);
    return run(
        2,
        str_cat("if [ $RANK = 0 ]; then trap '' TERM; while [ ! -e ", done, " ]; do sleep 0.02; done; exit 0; fi; ",
                "echo \"$0 $*\" >> ", starts, "; n=$(cat ", starts, " | wc -l); ", script),
        {}, o);
  }
  // The errors, with every process number as N.
  static std::string plain(const std::string& error) {
    return std::regex_replace(error, std::regex("pid [0-9]+"), "pid N");
  }
  const std::string starts = temporary("starts"), done = temporary("done");
};

TEST_F(LauncherRestarts, FollowASignalUntilNoneIsLeft) {
  const Outcome o = run_two(str_cat("if [ $n = 3 ]; then touch ", done, "; fi; kill -9 $$"), {.most = 2});
  EXPECT_EQ(o.code, 137);
  EXPECT_EQ(lines(starts), 3);
  const std::string died = "job: rank 1 (pid N) was killed by signal 9 (Killed)";
  const std::string text = plain(o.error);
  EXPECT_TRUE(text.starts_with(died + "; starting again, 1 restart left\n" + died +
                               "; starting again, 0 restarts left\n" + died))
      << text;
}

TEST_F(LauncherRestarts, ANewStepGivesAllRestartsAgain) {
  const Outcome o =
      run_two(str_cat("if [ $n -lt 5 ]; then kill -SEGV $$; fi; touch ", done),
              {.most = 1,
               .committed = [this](const std::string&) { return std::max<int64_t>(-1, lines(starts) - 2); },
               .arguments = {"name", "a"},
               .resume = {"--resume"}});
  EXPECT_EQ(o.code, 0) << o.error;
  EXPECT_EQ(content(starts), "name a\nname a\nname a --resume\nname a --resume\nname a --resume\n");
  std::string expected;
  for (const char* place : {"the beginning", "step 0", "step 1", "step 2"})
    expected += str_cat("job: rank 1 (pid N) was killed by signal 11 (Segmentation fault); starting again from ", place,
                        ", 0 restarts left\n");
  EXPECT_EQ(plain(o.error), expected);
}

TEST_F(LauncherRestarts, KeepFilesInMemory) {
  const std::string folder = temporary("memory");
  const Outcome o =
      run(1,
          str_cat("echo x >> ", starts, "; echo x >> $JOB_MEMORY/file.3; ls $JOB_MEMORY; echo $JOB_MEMORY > ", folder,
                  "; [ $(cat $JOB_MEMORY/file.3 | wc -l) = 3 ] || kill -9 $$"),
          {}, {.most = 1, .committed = [&](const std::string& memory) {
                 return static_cast<int64_t>(std::ifstream(memory + "/file.3").peek() == 'x') + lines(starts);
               }});
  EXPECT_EQ(o.code, 0) << o.error;
  EXPECT_EQ(lines(starts), 3);
  EXPECT_EQ(o.out, "file.0\nfile.1\nfile.2\nfile.3\nfile.0\nfile.1\nfile.2\nfile.3\nfile.0\nfile.1\nfile.2\nfile.3\n");
  std::string path = content(folder);
  path.pop_back();
  EXPECT_NE(path, "");
  EXPECT_FALSE(std::filesystem::exists(path)) << path << " is left";
  EXPECT_EQ(run(1, "echo \"<$JOB_MEMORY>\"").out, "<>\n");  // without restarts nothing could use it
}

TEST_F(LauncherRestarts, DoNotFollowErrorsOrARequestToEnd) {
  for (const char* end : {"exit 3", "kill -TERM $$", "kill -INT $$", "kill -HUP $$",
                          "printf 'fails disk' > $JOB_FAILURE_REPORT; kill -9 $$"}) {
    std::filesystem::remove(starts);
    const Outcome o = run(1, str_cat("echo x >> ", starts, "; ", end), {}, {.most = 5});
    EXPECT_NE(o.code, 0) << end;
    EXPECT_EQ(lines(starts), 1) << end;
    EXPECT_FALSE(has(o.error, "starting again")) << o.error;
  }
  std::filesystem::remove(starts);
  const Outcome o = run(2, str_cat("echo x >> ", starts, "; exec sleep 60"),
                        [&](pid_t pid) {
                          while (lines(starts) < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
                          kill(pid, SIGTERM);
                        },
                        {.most = 5});
  EXPECT_EQ(o.code, 143);
  EXPECT_EQ(lines(starts), 2);
}

TEST_F(LauncherRestarts, FollowAHangupThatIsIgnored) {
  std::filesystem::remove(done);
  ::signal(SIGHUP, SIG_IGN);  // as nohup does
  const Outcome o = run(1,
                        str_cat("echo x >> ", starts, "; while [ ! -e ", done, " ]; do sleep 0.02; done; [ $(cat ",
                                starts, " | wc -l) = 2 ] || kill -9 $$"),
                        [&](pid_t pid) {
                          while (lines(starts) < 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
                          kill(pid, SIGHUP);
                          std::ofstream(done) << "x";
                        },
                        {.most = 1});
  ::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(o.code, 0) << o.error;
  EXPECT_EQ(lines(starts), 2);
}

TEST_F(LauncherRestarts, FollowErrorsIfAsked) {
  for (const auto& [code, count] : {std::pair(3, 3), {137, 3}, {2, 1}, {126, 1}, {127, 1}, {0, 1}}) {
    std::filesystem::remove(starts);
    const Outcome o = run(1, str_cat("echo x >> ", starts, "; exit ", code), {}, {.most = 2, .after_errors = true});
    EXPECT_EQ(o.code, code);
    EXPECT_EQ(lines(starts), count) << code;
    EXPECT_EQ(has(o.error, "job: starting again, 0 restarts left\n"), count == 3) << o.error;
  }
  // Signals that ask a process to end.
  for (const char* signal : {"TERM", "INT", "HUP"}) {
    std::filesystem::remove(starts);
    run(1, str_cat("echo x >> ", starts, "; kill -", signal, " $$; sleep 5"), {}, {.most = 2, .after_errors = true});
    EXPECT_EQ(lines(starts), 1) << signal;
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
