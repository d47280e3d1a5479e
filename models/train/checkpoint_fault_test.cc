// Each file operation of saving a checkpoint in turn fails, or is the last before the process is killed.
// The folder then contains only complete checkpoints, the newest at least as new as before. The next save succeeds and
// leaves no other files behind. The same with two processes, each of which writes its shards, and asynchronously.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "distributed/comm/store.h"
#include "distributed/launch/processes.h"
#include "distributed/launch/sharded_cell.h"
#include "framework/dispatch/state/stored_value.h"
#include "framework/io/file.h"
#include "framework/io/testing/faults.h"
#include "models/train/checkpoint.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using io::testing::Fault;

// In a job of two processes, "w" has 20 ranges of an element in each process, and "w.m" is a copy in both.
std::string save(const std::string& dir, int64_t step, int64_t keep, int64_t version = 0, bool async = false) {
  auto cell = [&](const char* name, int64_t salt) {
    std::vector<float> v;
    for (int64_t i = 0; i < 40; ++i) v.push_back(static_cast<float>(i * salt + 1000 * step + version));
    const Parameter p(Tensor::from_vector<float>(v, {20, 2}), name);
    if (dist::Processes::current() && salt != 3) {
      dist::Axes split;
      if (salt == 2) split.push_back(0);
      dist::Spec spec;
      for (const auto& dim : {dist::one_segment(20), dist::one_segment(2, split)}) spec.dims.push_back(dim);
      auto shards = make_ref<dist::ShardedCell>(
          dist::ShardedCell::ShardLayout{.mesh = dist::Mesh::parse("dp2"), .place = {0, 1}, .rest = spec}, p.type());
      shards->scatter(p.value());
      internal::set_remote(p.cell(), shards);
    }
    return std::pair(std::string(name), CellHandle(p));
  };
  const TrainState state{.step = step, .samples = 4 * step, .family = "gpt"};
  const NamedCells model{cell("w", 2), cell("b", 3)}, optimizer{cell("w.m", 5)};
  if (!async) return save_checkpoint(dir, state, model, optimizer, keep);
  const auto saved = begin_checkpoint(dir, state, model, optimizer, keep);
  for (const auto& cells : {model, optimizer})  // a step between the beginning and the end
    for (const auto& [name, handle] : cells)
      if (!handle.cell().remote) handle.set(Tensor::from_vector(std::vector<float>(40), {20, 2}));
  saved->wait();
  WEFT_CHECK(saved->note().empty(), saved->note());
  return str_cat(dir, "/step_", step);
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
  int processes = 1;
  bool async = false;
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

  /// The end of a process that saves.
  struct End {
    bool killed = false, saved = false;
    int64_t calls = 0;
    std::string error;
  };

  /// Saves in new processes, of which process `faulty` has a fault.
  std::vector<End> save_in_processes(const std::string& dir, int faulty, int64_t at, Fault fault) {
    const Scenario& s = GetParam();
    const std::string store = str_cat(root_, "/job", jobs_++);
    struct Child {
      pid_t pid;
      int pipe[2];
    };
    std::vector<Child> children(static_cast<size_t>(s.processes));
    for (int p = 0; p < s.processes; ++p) {
      Child& c = children[static_cast<size_t>(p)];
      if (::pipe(c.pipe) != 0) ADD_FAILURE() << "no pipe";
      c.pid = ::fork();
      if (c.pid != 0) {
        ::close(c.pipe[1]);
        continue;
      }
      int code = 0;
      std::string message;
      try {
        if (s.processes > 1) join_job(store, p);
        io::testing::set_fault(p == faulty ? dir : "", at, fault);
        save(dir, s.step, s.keep, 7, s.async);
        message = str_cat(io::testing::total_calls());
        if (s.processes > 1) dist::Processes::current()->barrier();
      } catch (const Error& e) {
        code = 1, message = e.what();
      }
      dist::Processes::set_current({});
      (void)!::write(c.pipe[1], message.data(), message.size());
      ::_exit(code);
    }
    std::vector<End> ends;
    for (const Child& c : children) {
      char message[4096];
      const ssize_t n = ::read(c.pipe[0], message, sizeof message);
      ::close(c.pipe[0]);
      const std::string text(message, static_cast<size_t>(std::max<ssize_t>(n, 0)));
      int status = 0;
      EXPECT_EQ(::waitpid(c.pid, &status, 0), c.pid);
      End end{.killed = WIFSIGNALED(status), .saved = WIFEXITED(status) && WEXITSTATUS(status) == 0};
      EXPECT_TRUE(!end.killed || WTERMSIG(status) == SIGKILL) << "signal " << WTERMSIG(status);
      if (end.saved) end.calls = std::stoll(text);
      if (!end.saved) end.error = text;
      ends.push_back(end);
    }
    return ends;
  }

  static void join_job(const std::string& store, int process) {
    dist::FolderStore meeting(store);
    dist::Processes::set_current(
        std::make_unique<dist::Processes>(meeting, 2, process, 1, std::chrono::seconds(20), "shared"));
  }

  using Files = std::map<std::string, std::string>;
  std::map<std::string, Files> before_, whole_;  // checkpoint -> earlier files, files of a complete save
  std::string root_;
  int jobs_ = 0;
};

TEST_P(CheckpointFaults, LeaveCompleteCheckpoints) {
  const Scenario& s = GetParam();
  const std::string dir = root_ + "/run", old = s.before.empty() ? "" : str_cat("step_", s.before.back());
  for (int faulty = 0; faulty < s.processes; ++faulty) {
    begin(dir);
    const int64_t calls = save_in_processes(dir, faulty, -1, Fault::kKill)[static_cast<size_t>(faulty)].calls;
    EXPECT_GT(calls, faulty == 0 ? 20 : 3) << "the calls are not replaced";
    for (Fault fault : io::testing::kFaults)
      for (int64_t at = 0; at < calls; ++at) {
        SCOPED_TRACE(
            str_cat("fault ", static_cast<int>(fault), " at call ", at, " of ", calls, " of process ", faulty));
        begin(dir);
        const std::vector<End> ends = save_in_processes(dir, faulty, at, fault);
        const bool killed = ends[static_cast<size_t>(faulty)].killed, saved = ends[0].saved && ends.back().saved;
        for (const End& e : ends) {
          EXPECT_EQ(e.killed, killed && &e == &ends[static_cast<size_t>(faulty)]);
          EXPECT_TRUE(killed || e.saved == saved) << e.error;  // all processes agree
          EXPECT_TRUE(killed || saved || e.error.find(dir) != e.error.npos) << e.error;
          EXPECT_EQ(e.error.find('\n'), e.error.npos) << e.error;
        }

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
}

INSTANTIATE_TEST_SUITE_P(Saves, CheckpointFaults,
                         ::testing::Values(Scenario{"next", {1}, 2, 3, {"step_1", "step_2"}},
                                           Scenario{"removes", {0, 1, 2}, 3, 2, {"step_2", "step_3"}},
                                           Scenario{"replaces", {1, 2}, 2, 3, {"step_1", "step_2"}},
                                           Scenario{"replaces_by_renames", {1, 2}, 2, 3, {"step_1", "step_2"}, false},
                                           Scenario{"in_parts", {1}, 2, 3, {"step_1", "step_2"}, true, 2},
                                           Scenario{"async", {0, 1, 2}, 3, 2, {"step_2", "step_3"}, true, 1, true},
                                           Scenario{"async_in_parts", {1}, 2, 3, {"step_1", "step_2"}, true, 2, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::train
