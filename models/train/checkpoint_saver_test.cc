// Saves of a run: blocking and asynchronous ones have equal files, errors warn or stop, and a step during a save
// changes the cells and not the files. A fault of the disk holds a save in the middle.
#include "models/train/checkpoint_saver.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "distributed/launch/held_memory.h"
#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/testing/faults.h"
#include "models/gpt/model.h"
#include "models/train/memory.h"
#include "models/train/trainer.h"
#include "ops/core/core.h"

namespace weft::train {
namespace {

using io::testing::Fault;
using testing::error_of;
using testing::expect_has;

class Saver : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = io::testing::fast_folder();
    ASSERT_NE(root_, "");
    dir_ = root_ + "/run";
    setup_.dir = dir_;
    setup_.checkpoint_every = 1;
    options_.checkpoint_async = true;
    options_.keep = 1;
  }
  void TearDown() override {
    io::testing::set_fault("");
    io::remove_all(root_);
  }

  std::unique_ptr<CheckpointSaver> make() {
    auto saver = std::make_unique<CheckpointSaver>(setup_, options_);
    EXPECT_TRUE(saver->lock());
    return saver;
  }
  CheckpointSaver::Content content(int64_t step) const {
    return {.state = {.step = step, .family = "gpt"}, .model = {{"w", w_}}, .optimizer = {}, .about = {}};
  }
  std::vector<float> saved_w(int64_t step) const {
    const Parameter w(zeros({4}), "w");
    load_cells(open_tensors(str_cat(dir_, "/step_", step), "model", {}), {{"w", w}});
    return w.value().to_vector<float>();
  }
  /// The numbers of calls for files in the first save of a folder: until its thread begins, and until its end.
  std::pair<int64_t, int64_t> calls_of_a_save() {
    io::testing::set_fault(dir_ + "/step_");
    make()->save(content(1), /*last=*/true, progress_);
    const int64_t all = io::testing::total_calls();
    io::remove_all(dir_);
    return {all / 2, all};
  }

  std::string root_, dir_;
  const Parameter w_{ones({4}), "w"};
  train::Setup setup_;
  TrainOptions options_;
  Progress progress_{0, 100};
};

/// The text that `fn` prints to standard output or standard error.
template <class F>
std::pair<std::string, std::string> printed(const F& fn) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  fn();
  std::fflush(stdout);
  const std::string out = ::testing::internal::GetCapturedStdout();
  return {out, ::testing::internal::GetCapturedStderr()};
}

TEST(BestInterval, IsThatOfYoung) {
  EXPECT_NEAR(best_interval(60, 0, 864), 322, 0.5);
  EXPECT_EQ(best_interval(0.5, 0, 3 * 3600), std::sqrt(3.0 * 3600));
  EXPECT_GT(best_interval(0.5, 2, 3600), best_interval(0.5, 0, 3600));
  EXPECT_EQ(best_interval(1e-6, 100, 10), 100);  // one save at a time
}

TEST_F(Saver, IsDueByStepsOrByTime) {
  setup_.checkpoint_every = 3;
  CheckpointSaver steps(setup_, options_);
  for (int64_t step = 1; step < 9; ++step) EXPECT_EQ(steps.due(step), step % 3 == 0);
  setup_.checkpoint_every = 0;
  CheckpointSaver never(setup_, options_);
  for (int64_t step = 1; step < 9; ++step) EXPECT_FALSE(never.due(step));
  setup_.checkpoint_every = -1;
  options_.mtbf = 1e-30;
  const auto by_time = make();
  EXPECT_FALSE(by_time->due(1));
  EXPECT_FALSE(by_time->due(2));  // 30 s before a save has been measured
  by_time->save(content(2), false, progress_);
  by_time->wait(progress_);
  while (!by_time->due(3)) std::this_thread::yield();
}

TEST_F(Saver, AStepMeanwhileChangesTheCellsAndNotTheFile) {
  const auto [at, calls] = calls_of_a_save();
  const auto saver = make();
  EXPECT_FALSE(saver->busy());
  saver->advance();  // nothing is being saved
  io::testing::set_fault(dir_ + "/step_", at, Fault::kHold);
  saver->save(content(1), false, progress_);
  io::testing::wait_for_hold();
  EXPECT_TRUE(saver->busy());
  w_.set(full({4}, 2.0));
  EXPECT_EQ(latest_checkpoint(dir_), "");
  EXPECT_EQ(saver->saved(), -1);
  io::testing::release();
  while (saver->busy()) std::this_thread::yield();
  saver->advance();
  EXPECT_EQ(saver->saved(), 1);
  EXPECT_EQ(saved_w(1), std::vector<float>(4, 1));
  saver->save(content(2), true, progress_);
  EXPECT_FALSE(saver->busy());
  EXPECT_EQ(saver->saved(), 2);
  EXPECT_EQ(saved_w(2), std::vector<float>(4, 2));
}

TEST_F(Saver, ASaveThatIsDueWaitsAndSaysSo) {
  const auto [at, calls] = calls_of_a_save();
  const auto saver = make();
  io::testing::set_fault(dir_ + "/step_", at, Fault::kHold);
  saver->save(content(1), false, progress_);
  io::testing::wait_for_hold();
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    io::testing::release();
  });
  const auto [out, err] = printed([&] { saver->save(content(2), false, progress_); });
  later.join();
  expect_has(out, "waited 0.");
  expect_has(out, " s for the save of step 1\n");
  saver->wait(progress_);
  EXPECT_EQ(err, "");
  EXPECT_EQ(io::base_name(latest_checkpoint(dir_)), "step_2");
}

TEST_F(Saver, AnErrorWarnsOrStops) {
  const auto [at, calls] = calls_of_a_save();
  const std::string why = dir_ + "/step_1", goes_on = "; training goes on (--checkpoint_errors)\n";
  for (const bool async : {true, false}) {
    options_.checkpoint_async = async;
    options_.checkpoint_errors = "warn";
    io::remove_all(dir_);
    const auto saver = make();
    for (const int64_t call : {int64_t{1}, at}) {  // when it begins, and while it is written
      io::testing::set_fault(dir_ + "/step_", call, Fault::kNoSpace);
      const std::string err = printed([&] {
                                saver->save(content(1), false, progress_);
                                saver->wait(progress_);
                              }).second;
      EXPECT_TRUE(err.starts_with("weft: step 1 is not saved: ") && err.ends_with(goes_on)) << err;
      expect_has(err, why);
      EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
      EXPECT_EQ(saver->saved(), -1);
      EXPECT_FALSE(saver->busy());
      // The end of the run needs a checkpoint.
      expect_has(error_of([&] { saver->save(content(1), true, progress_); }), why);
    }
    io::testing::set_fault("");
    saver->save(content(2), false, progress_);
    saver->wait(progress_);
    EXPECT_EQ(saver->saved(), 2);
    EXPECT_EQ(io::list_folder(dir_), (std::vector<std::string>{".lock", "step_2"}));
  }
  options_.checkpoint_errors = "stop";
  io::remove_all(dir_);
  const auto saver = make();
  io::testing::set_fault(dir_ + "/step_", at, Fault::kNoSpace);
  expect_has(error_of([&] {
               saver->save(content(1), false, progress_);
               saver->wait(progress_);
             }),
             why);
}

TEST_F(Saver, AFolderThatAnotherRunHasTakenEndsTheRun) {
  const auto [at, calls] = calls_of_a_save();
  const auto saver = make();
  io::testing::set_fault(dir_ + "/step_", at, Fault::kHold);
  saver->save(content(1), false, progress_);
  io::testing::wait_for_hold();
  io::remove_all(lock_path(dir_));
  const io::FileLock other(lock_path(dir_), "the folder");
  io::testing::release();
  expect_has(error_of([&] { saver->wait(progress_); }), "is in use by process");
  EXPECT_EQ(latest_checkpoint(dir_), "");
}

TEST_F(Saver, AFileInPlaceOfTheFolderIsAFailedSave) {
  for (const bool async : {true, false}) {
    options_.checkpoint_async = async;
    const auto saver = make();
    io::remove_all(dir_);
    io::write_file_atomic(dir_, "a file");
    const std::string why = str_cat("cannot create folder '", dir_, "': Not a directory");
    const std::string err = printed([&] {
                              saver->save(content(1), false, progress_);
                              saver->wait(progress_);
                            }).second;
    EXPECT_EQ(err, "weft: step 1 is not saved: " + why + "; training goes on (--checkpoint_errors)\n");
    EXPECT_EQ(error_of([&] { saver->save(content(1), /*last=*/true, progress_); }), why);
    io::remove_all(dir_);
    saver->save(content(2), true, progress_);
    EXPECT_EQ(io::list_folder(dir_), (std::vector<std::string>{".lock", "step_2"}));
    io::remove_all(dir_);
  }
}

TEST_F(Saver, OldCheckpointsThatCannotBeRemovedHaveTheirOwnSentence) {
  // The calls of a save without old checkpoints come first. The calls that remove follow.
  const int64_t calls = calls_of_a_save().second;
  for (const char* errors : {"warn", "stop"}) {
    options_.checkpoint_errors = errors;
    io::remove_all(dir_);
    const auto saver = make();
    saver->save(content(1), true, progress_);
    io::testing::set_fault(dir_ + "/step_", calls, Fault::kBroken);
    std::string error;
    const std::string err = printed([&] {
                              // The error is a cause, and does not follow another one.
                              error = testing::placed_error_of(
                                  [&] {
                                    saver->save(content(2), false, progress_);
                                    saver->wait(progress_);
                                  },
                                  Code::kFailedPrecondition);
                            }).second;
    const std::string text = "old checkpoints are not removed: ";
    if (*errors == 'w') {
      EXPECT_TRUE(err.starts_with("weft: " + text)) << err;
      EXPECT_EQ(error, "");
    } else {
      EXPECT_TRUE(error.starts_with(text)) << error;
      EXPECT_EQ(err, "");
    }
    expect_has(error + err, dir_ + "/step_1");
    EXPECT_EQ(saver->saved(), 2);
    EXPECT_EQ(io::base_name(latest_checkpoint(dir_)), "step_2");
  }
}

TEST_F(Saver, RunsOfOneLauncherDoNotFindStatesOfEachOther) {
  const dist::HeldMemory held(4);
  ASSERT_NE(held.path(), "");
  ::setenv(dist::kMemoryVariable, held.path().c_str(), 1);
  train::Setup second = setup_;
  setup_.memory = memory_folder("", dir_);
  second.memory = memory_folder("", dir_ + "2");
  setup_.memory_every = second.memory_every = 1;
  const auto keep = [&](const train::Setup& setup, int64_t step) {
    MemorySaver saver(setup);
    saver.begin(content(step - 1));
    saver.save(content(step), /*saved=*/-1);
    while (saver.busy()) std::this_thread::yield();
    saver.advance();
    EXPECT_EQ(newest_step(setup.memory), step);
  };
  keep(setup_, 1);
  keep(setup_, 2);
  EXPECT_EQ(newest_step(second.memory), -1);
  w_.set(full({4}, 3.0));
  keep(second, 1);
  EXPECT_EQ(newest_step(setup_.memory), -1) << "a state whose bytes another run has replaced is left";
  const Parameter w(zeros({4}), "w");
  load_cells(open_tensors(second.memory + "/step_1", "model", {}), {{"w", w}});
  EXPECT_EQ(w.value().to_vector<float>(), std::vector<float>(4, 3));
  MemorySaver last(second);
  last.begin(content(1));
  last.end();
  EXPECT_EQ(newest_step(second.memory), -1);
  ::unsetenv(dist::kMemoryVariable);
}

TEST_F(Saver, StatesNeedFreeMemory) {
  const dist::HeldMemory held(4);
  ASSERT_NE(held.path(), "");
  ::setenv(dist::kMemoryVariable, held.path().c_str(), 1);
  setup_.memory = memory_folder("", dir_);
  setup_.memory_every = 1;
  MemorySaver saver(setup_);
  CheckpointSaver::Content large = content(1);
  const Shape huge{int64_t{1} << 42};
  large.model.emplace_back("huge", Parameter({kFloat32, Device::cpu(), huge}, [&] { return zeros(huge); }));
  const std::string error = error_of([&] { saver.begin(large); });
  EXPECT_TRUE(error.starts_with("--memory_every: this host has ")) << error;
  expect_has(error, "B of free memory; need 35.2 TB for two states of the run");
  ::unsetenv(dist::kMemoryVariable);
}

TEST_F(Saver, ThePartOfAStateThatAKilledRunLeftTakesNoRoom) {
  setup_.memory = memory_folder(root_, dir_);
  MemorySaver(setup_).begin(content(1));
  const pid_t killed = ::fork();
  if (killed == 0) {
    new io::AtomicFolder(setup_.memory + "/step_2");
    ::_exit(0);
  }
  ::waitpid(killed, nullptr, 0);
  EXPECT_FALSE(io::list_folder(setup_.memory).empty());
  MemorySaver(setup_).begin(content(1));
  EXPECT_EQ(io::list_folder(setup_.memory), std::vector<std::string>());
}

TEST_F(Saver, AFolderOfStatesOnADiskIsNoted) {
  setup_.memory_every = 1;
  for (const std::string& in : {root_, ::testing::TempDir() + "/states"}) {
    setup_.memory = memory_folder(in, dir_);
    MemorySaver saver(setup_);
    const std::string err = printed([&] { saver.begin(content(1)); }).second;
    EXPECT_EQ(err, io::is_in_memory(in) ? ""
                                        : str_cat("weft: --memory_dir: ", setup_.memory,
                                                  " is on a disk, so states take the time of checkpoints; need a "
                                                  "folder in memory, such as /dev/shm\n"));
    saver.end();
  }
}

TrainOptions run_in(const std::string& dir, bool async) {
  TrainOptions o;
  o.config = "gpt_tiny";
  o.data = "synthetic";
  o.steps = 9;
  o.batch_size = 1;
  o.seq_len = 4;
  o.keep = 0;
  o.checkpoint_every = "2";
  o.checkpoint_async = async;
  o.checkpoint_dir = dir;
  return o;
}

TEST(AsynchronousRun, HasTheFilesOfABlockingRun) {
  const std::string root = io::testing::fast_folder();
  for (const char* mesh : {"", "fsdp2"}) {
    io::remove_all(root);
    io::make_folders(root);
    for (const bool async : {false, true}) {
      TrainOptions o = run_in(root + (async ? "/async" : "/blocking"), async);
      o.batch_size = 2;
      o.mesh = mesh;
      o.ranks = "threads";
      EXPECT_EQ(train(gpt::family(), o), 0);
    }
    for (const int step : {2, 4, 6, 8, 9})
      for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
        const auto text = [&](const char* run) {
          return io::read_file(str_cat(root, "/", run, "/step_", step, "/", file));
        };
        EXPECT_TRUE(text("async") == text("blocking")) << mesh << " " << step << " " << file;
      }
  }
  io::remove_all(root);
}

// The save of step 2 is held until a line of step 3 is in the metrics file.
TEST(AsynchronousRun, GoesOnWhileACheckpointIsWritten) {
  const std::string root = io::testing::fast_folder();
  TrainOptions o = run_in(root + "/run", true);
  o.metrics = root + "/metrics.jsonl";
  io::testing::set_fault(o.checkpoint_dir + "/step_", 12, Fault::kHold);
  std::thread releases([&] {
    io::testing::wait_for_hold();
    EXPECT_FALSE(io::exists(o.checkpoint_dir + "/step_2"));
    while (io::read_file(o.metrics).find("\"step\":3,") == std::string::npos) std::this_thread::yield();
    EXPECT_FALSE(io::exists(o.checkpoint_dir + "/step_2"));
    io::testing::release();
  });
  EXPECT_EQ(train(gpt::family(), o), 0);
  releases.join();
  io::testing::set_fault("");
  TrainOptions blocking = run_in(root + "/blocking", false);
  EXPECT_EQ(train(gpt::family(), blocking), 0);
  for (const int step : {2, 4, 6, 8, 9})
    EXPECT_TRUE(io::read_file(str_cat(root, "/run/step_", step, "/model.safetensors")) ==
                io::read_file(str_cat(root, "/blocking/step_", step, "/model.safetensors")))
        << step;
  io::remove_all(root);
}

}  // namespace
}  // namespace weft::train
