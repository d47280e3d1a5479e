// States in memory of a job on two hosts: each host has whole states. The processes of the first host are killed and
// its memory is removed; the job goes on from the memory of the second host. Here the hosts are processes that see
// other names of their network, and have other working folders.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <regex>
#include <thread>

#include "framework/io/file.h"
#include "framework/io/testing/faults.h"
#include "models/testing/tiny_family.h"
#include "models/train/checkpoint.h"
#include "models/train/trainer.h"

// The name of a network identifies a host (distributed/comm/world_checks.h).
extern "C" ssize_t readlink(const char* path, char* to, size_t size) noexcept {
  const ssize_t n = ::readlinkat(AT_FDCWD, path, to, size);
  const char* const host = std::getenv("TEST_HOST");
  if (!host || n <= 0 || std::strcmp(path, "/proc/self/ns/net") != 0) return n;
  to[0] = *host;
  return n;
}

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHosts[] = {"A", "A", "B", "B"};  // by rank
constexpr int kSteps = 300;

std::string free_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  ::bind(s, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(s, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(s);
  return str_cat(static_cast<int>(ntohs(address.sin_port)));
}

class MemoryHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = io::testing::fast_folder();
    ASSERT_NE(root_, "");
    for (const char* host : kHosts) io::make_folders(root_ + "/" + host);
  }
  void TearDown() override {
    for (const pid_t pid : running_) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    io::remove_all(root_);
  }

  /// Starts the ranks of a job. Rank r writes to root_/NAME.r. The job waits where rank 0 makes a file with a path that
  /// begins with hold_.
  void start(const std::string& name, const std::string& mesh, const std::string& memory_dir = "states") {
    const std::string port = free_port();
    const std::vector<std::string> args = {"memory_hosts_test",
                                           "train",
                                           "--mesh=" + mesh,
                                           "--data=synthetic",
                                           "--batch_size=4",
                                           "--seq_len=8",
                                           "--seed=7",
                                           "--threads=1",
                                           "--weft_verify=0",
                                           "--resume",
                                           "--checkpoint_every=1000",
                                           "--memory_every=5",
                                           "--memory_dir=" + memory_dir,
                                           str_cat("--steps=", kSteps),
                                           str_cat("--checkpoint_dir=", root_, "/", mesh, "-steps"),
                                           str_cat("--weft_cache=", ::testing::TempDir(), "/memory_kernels")};
    for (int rank = 0; rank < 4; ++rank) {
      const pid_t child = ::fork();
      if (child != 0) {
        running_.push_back(child);
        continue;
      }
      const std::string host = kHosts[rank], out = str_cat(root_, "/", name, ".", rank), number = str_cat(rank);
      for (const auto& [variable, value] : {std::pair("RANK", number.c_str()),
                                            {"WORLD_SIZE", "4"},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", port.c_str()},
                                            {"JOB_ADDRESS", "127.0.0.1"},
                                            {"TEST_HOST", host.c_str()}})
        ::setenv(variable, value, 1);
      if (rank == 0 && !hold_.empty()) ::setenv("TEST_HOLD", hold_.c_str(), 1);
      ::unsetenv("BUILD_WORKING_DIRECTORY");
      const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      ::dup2(file, STDOUT_FILENO), ::dup2(file, STDERR_FILENO);
      std::vector<char*> argv;
      for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
      argv.push_back(nullptr);
      if (::chdir((root_ + "/" + host).c_str()) == 0) ::execv("/proc/self/exe", argv.data());
      ::_exit(127);
    }
  }
  /// The exit codes of the ranks; -1: a signal.
  std::vector<int> wait() {
    std::vector<int> codes;
    for (const pid_t pid : running_) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    running_.clear();
    return codes;
  }
  std::string text(const std::string& name, int rank) { return io::read_file(str_cat(root_, "/", name, ".", rank)); }
  /// The step of the newest state in memory of a host; -1: there is none.
  int64_t newest(const std::string& host) try {
    const std::string states = root_ + "/" + host + "/states";
    int64_t step = -1;
    if (!io::is_folder(states)) return step;
    for (const std::string& run : io::list_folder(states))
      step = std::max(step, train::newest_step(states + "/" + run));
    return step;
  } catch (const Error&) {  // the run has removed them
    return -1;
  }
  bool has_ended() {
    for (const pid_t pid : running_) {
      siginfo_t info = {};
      if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0)
        return true;
    }
    return false;
  }

  std::string root_, hold_;
  std::vector<pid_t> running_;  // by rank
};

TEST_F(MemoryHosts, ASecondHostHasACopy) {
  start("calm", "dp2,fsdp2");
  ASSERT_EQ(wait(), std::vector<int>(4)) << text("calm", 0);
  const std::string steps = root_ + "/dp2,fsdp2-steps", last = str_cat("/step_", kSteps, "/");
  const std::string want = io::read_file(steps + last + "model.safetensors"),
                    moments = io::read_file(steps + last + "optimizer.safetensors");
  for (const char* host : {"A", "B"}) EXPECT_EQ(newest(host), -1) << "states are left";
  io::remove_all(steps);

  hold_ = steps + "/step_";  // the last checkpoint
  start("killed", "dp2,fsdp2");
  hold_.clear();
  while (!has_ended() && (newest("A") < 5 || newest("B") < 5))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const int rank : {0, 1}) ::kill(running_[static_cast<size_t>(rank)], SIGKILL);
  const std::vector<int> codes = wait();
  EXPECT_EQ(codes[0], -1) << text("killed", 0);
  EXPECT_NE(codes[2], 0);
  const int64_t kept = newest("B");
  ASSERT_GE(kept, 5) << text("killed", 2);
  fs::copy(root_ + "/B/states", root_ + "/copy", fs::copy_options::recursive);

  for (const bool lost : {true, false}) {
    SCOPED_TRACE(lost ? "the first host has no states" : "the first host has a newer state of another line of the run");
    io::remove_all(root_ + "/A/states");
    io::remove_all(root_ + "/B/states");
    io::remove_all(steps);
    fs::copy(root_ + "/copy", root_ + "/B/states", fs::copy_options::recursive);
    if (!lost) {
      fs::copy(root_ + "/copy", root_ + "/A/states", fs::copy_options::recursive);
      const std::string run = str_cat(root_, "/A/states/", io::list_folder(root_ + "/A/states").at(0));
      fs::rename(str_cat(run, "/step_", kept), str_cat(run, "/step_", kSteps - 1));
      io::write_file_atomic(run + "/saved", "1 another checkpoint");
    }
    start("later", "dp2,fsdp2");
    ASSERT_EQ(wait(), std::vector<int>(4)) << text("later", 0);
    const std::string out = text("later", 0);
    EXPECT_NE(out.find(str_cat("/step_", kept, " is copied from the host of rank 2\n")), out.npos) << out;
    EXPECT_TRUE(std::regex_search(out, std::regex(str_cat("resumed from states/weft-.*/step_", kept, "\n")))) << out;
    EXPECT_TRUE(io::read_file(steps + last + "model.safetensors") == want);
    EXPECT_TRUE(io::read_file(steps + last + "optimizer.safetensors") == moments);
  }
}

TEST_F(MemoryHosts, EachHostNeedsItsOwnFolder) {
  start("shared", "dp2,fsdp2", root_ + "/states");
  for (const int code : wait()) EXPECT_NE(code, 0);
  const std::string out = text("shared", 0), error = "--memory_dir: the hosts of rank 2 and rank 0 share '";
  EXPECT_NE(out.find(error + root_ + "/states/weft-"), out.npos) << out;
}

// A host with some of the shards cannot keep a state.
TEST_F(MemoryHosts, AHostNeedsAllShards) {
  start("split", "fsdp4");
  ASSERT_EQ(wait(), std::vector<int>(4)) << text("split", 0);
  const std::string out = text("split", 0);
  EXPECT_NE(out.find("the ranks on the host of rank 0 lack a part of '"), out.npos) << out;
  EXPECT_NE(out.find("; training goes on\n"), out.npos) << out;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "train") {
    if (const char* const hold = std::getenv("TEST_HOLD"))
      weft::io::testing::set_fault(hold, 0, weft::io::testing::Fault::kHold);
    return weft::train::train_main(argc - 1, argv + 1, weft::testing::tiny_family());
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
