// Each file operation of saving a checkpoint in turn fails, or is the last before the process is killed.
// The folder then contains only complete checkpoints, the newest at least as new as before. The next save succeeds and
// leaves no other files behind.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "framework/io/file.h"
#include "framework/io/testing/faults.h"
#include "models/train/checkpoint.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using io::testing::Fault;

std::string save(const std::string& dir, int64_t step, int64_t keep, int64_t version = 0) {
  auto cell = [&](const char* name, int64_t salt) {
    std::vector<float> v;
    for (int64_t i = 0; i < 40; ++i) v.push_back(static_cast<float>(i * salt + 1000 * step + version));
    return std::pair(std::string(name), CellHandle(Parameter(Tensor::from_vector<float>(v, {40}), name)));
  };
  return save_checkpoint(dir, {.step = step, .samples = 4 * step, .family = "gpt"}, {cell("w", 2), cell("b", 3)},
                         {cell("w.m", 5)}, keep);
}

/// The files of a folder, by name.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const std::string& name : io::list_folder(folder)) out[name] = io::read_file(folder + "/" + name);
  return out;
}

std::vector<std::string> sorted(std::vector<std::string> v) {
  std::sort(v.begin(), v.end());
  return v;
}

struct Scenario {
  const char* name;
  std::vector<int64_t> before;  // the steps that are saved already
  int64_t step, keep;           // the save that is disturbed
  std::vector<std::string> after;
  bool exchange = true;  // the file system can exchange two names
};

void PrintTo(const Scenario& s, std::ostream* out) { *out << s.name; }

class CheckpointFaults : public ::testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    root_ = io::testing::fast_folder();
    ASSERT_NE(root_, "");
    io::testing::set_exchange(GetParam().exchange);
    for (int64_t step : GetParam().before) before_[str_cat("step_", step)] = files_of(save(root_ + "/before", step, 0));
    whole_ = before_;
    // A step that is saved again has other values.
    whole_[str_cat("step_", GetParam().step)] = files_of(save(root_ + "/whole", GetParam().step, 0, 7));
  }
  void TearDown() override { io::remove_all(root_); }

  /// Fills the run's folder with the earlier checkpoints.
  void begin(const std::string& dir) {
    io::remove_all(dir);
    io::make_folders(dir);
    if (!GetParam().before.empty()) fs::copy(root_ + "/before", dir, fs::copy_options::recursive);
  }

  void check_complete(const std::string& folder) {
    const std::string name = io::base_name(folder);
    const auto got = files_of(folder);
    EXPECT_TRUE(got == whole_[name] || (before_.count(name) && got == before_[name]))
        << folder << " has " << got.size() << " files and is not a complete checkpoint";
  }

  using Files = std::map<std::string, std::string>;
  std::map<std::string, Files> before_, whole_;  // checkpoint -> earlier files, files of a complete save
  std::string root_;
};

TEST_P(CheckpointFaults, LeaveCompleteCheckpoints) {
  const Scenario& s = GetParam();
  const std::string dir = root_ + "/run";
  begin(dir);
  io::testing::set_fault(root_);
  save(dir, s.step, s.keep, 7);
  const int64_t calls = io::testing::total_calls();
  EXPECT_GT(calls, 20) << "the calls are not replaced";
  for (Fault fault : io::testing::kFaults)
    for (int64_t at = 0; at < calls; ++at) {
      SCOPED_TRACE(str_cat("fault ", static_cast<int>(fault), " at call ", at, " of ", calls));
      begin(dir);
      int pipe[2];
      ASSERT_EQ(::pipe(pipe), 0);
      const pid_t child = ::fork();
      if (child == 0) {
        int code = 0;
        io::testing::set_fault(dir, at, fault);
        std::string message;
        try {
          save(dir, s.step, s.keep, 7);
        } catch (const Error& e) {
          code = 1, message = e.what();
        }
        (void)!::write(pipe[1], message.data(), message.size());
        ::_exit(code);
      }
      ::close(pipe[1]);
      char message[4096];
      const ssize_t n = ::read(pipe[0], message, sizeof message);
      ::close(pipe[0]);
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      const bool killed = WIFSIGNALED(status), saved = !killed && WEXITSTATUS(status) == 0;
      if (!killed && !saved) {
        const std::string text(message, static_cast<size_t>(std::max<ssize_t>(n, 0)));
        EXPECT_NE(text.find(dir), text.npos) << text;
        EXPECT_EQ(text.find('\n'), text.npos) << text;
      }
      EXPECT_TRUE(!killed || WTERMSIG(status) == SIGKILL) << "signal " << WTERMSIG(status);

      const std::string old = s.before.empty() ? "" : str_cat("step_", s.before.back());
      if (at % 2 == 1 && !old.empty()) {  // either function finds it
        EXPECT_EQ(find_checkpoint(dir + "/" + old), dir + "/" + old);
      }
      const std::string newest = io::base_name(latest_checkpoint(dir));
      EXPECT_TRUE(newest == str_cat("step_", s.step) || (!saved && newest == old)) << newest;
      for (const std::string& name : io::list_folder(dir))
        if (name.starts_with("step_") && name.find('.') == name.npos) check_complete(dir + "/" + name);

      save(dir, s.step, s.keep, 7);
      EXPECT_EQ(io::list_folder(dir), sorted(s.after));
      EXPECT_TRUE(files_of(str_cat(dir, "/step_", s.step)) == whole_[str_cat("step_", s.step)]);
      if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Saves, CheckpointFaults,
                         ::testing::Values(Scenario{"next", {1}, 2, 3, {"step_1", "step_2"}},
                                           Scenario{"removes", {0, 1, 2}, 3, 2, {"step_2", "step_3"}},
                                           Scenario{"replaces", {1, 2}, 2, 3, {"step_1", "step_2"}},
                                           Scenario{"replaces_by_renames", {1, 2}, 2, 3, {"step_1", "step_2"}, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::train
