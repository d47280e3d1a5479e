// Two runs on one folder of checkpoints, one after the other.
#include "models/train/trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "compiler/exec/testing/trace_file.h"
#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/tensor/storage.h"
#include "models/gpt/model.h"
#include "models/train/checkpoint.h"

namespace weft::train {
namespace {

TrainOptions options_in(const std::string& dir, int64_t steps) {
  TrainOptions o;
  o.config = "gpt_tiny";
  o.data = "synthetic";
  o.steps = steps;
  o.batch_size = 1;
  o.seq_len = 4;
  o.step.enabled = false;
  o.checkpoint_every = "2";
  o.checkpoint_dir = dir;
  return o;
}

// gpt, but while the first model is made, another run starts and ends.
nn::ModelFamily after_another_run(const TrainOptions& other) {
  nn::ModelFamily family = gpt::family();
  family.make = [other, first = true](const nn::ConfigMap& config) mutable {
    if (std::exchange(first, false)) train(gpt::family(), other);
    return gpt::family().make(config);
  };
  return family;
}

std::string folder(const std::string& name) {
  const std::string dir = ::testing::TempDir() + "/trainer_test_" + name;
  io::remove_all(dir);
  return dir;
}

TEST(Trainer, ResumesFromACheckpointThatAppearsWhileItStarts) {
  const std::string dir = folder("resume"), metrics = dir + "/metrics.jsonl";
  EXPECT_EQ(train(gpt::family(), options_in(dir, 2)), 0);
  TrainOptions other = options_in(dir, 4), mine = options_in(dir, 6);
  other.resume = mine.resume = true;
  mine.metrics = metrics;
  EXPECT_EQ(train(after_another_run(other), mine), 0);
  const std::string text = io::read_file(metrics);
  EXPECT_EQ(text.rfind("{\"step\":5,", 0), 0u) << text;
  EXPECT_EQ(read_state(latest_checkpoint(dir)).step, 6);
}

// One device makes each second step twice, to compare the results.
TEST(Trainer, WritesTheEventsOfAStepOnce) {
  const std::string dir = folder("events");
  TrainOptions o = options_in(dir + "/run", 6);
  o.check_state = 2;
  o.log_dir = dir + "/events";
  EXPECT_EQ(train(gpt::family(), o), 0);
  const std::vector<std::string> files = io::list_folder(o.log_dir);
  ASSERT_EQ(files.size(), 1u);
  const std::string text = io::read_file(o.log_dir + "/" + files[0]), tag = "train/loss";
  int count = 0;
  for (size_t at = text.find(tag); at != text.npos; at = text.find(tag, at + 1)) ++count;
  EXPECT_EQ(count, 6);
}

TEST(Trainer, RefusesCheckpointsThatAppearWhileItStarts) {
  const std::string dir = folder("refuse");
  testing::expect_error([&] { train(after_another_run(options_in(dir, 2)), options_in(dir, 4)); },
                        "holds the checkpoints of an earlier run; add --resume to continue");
  EXPECT_EQ(read_state(latest_checkpoint(dir)).step, 2);
}

TEST(Trainer, KeepsMetricsIfThereIsNothingToResume) {
  const std::string dir = folder("metrics"), metrics = dir + "/metrics.jsonl";
  TrainOptions o = options_in(dir + "/runs", 2);
  o.metrics = metrics;
  EXPECT_EQ(train(gpt::family(), o), 0);
  const std::string first = io::read_file(metrics);
  o.checkpoint_dir = dir + "/rums";
  o.resume = true;
  EXPECT_EQ(train(gpt::family(), o), 0);
  EXPECT_EQ(io::read_file(metrics + ".1"), first);
  o.checkpoint_dir = dir + "/ruins";
  EXPECT_EQ(train(gpt::family(), o), 0);
  EXPECT_EQ(io::read_file(metrics + ".1"), first);
  EXPECT_EQ(io::read_file(metrics).rfind("{\"step\":1,", 0), 0u);
}

TEST(Trainer, WritesEventsForEachStep) {
  const std::string dir = folder("events");
  TrainOptions o = options_in(dir + "/runs", 2);
  o.log_dir = dir + "/log";
  EXPECT_EQ(train(gpt::family(), o), 0);
  o.resume = true;
  o.steps = 3;
  EXPECT_EQ(train(gpt::family(), o), 0);
  int64_t files = 0, losses = 0;
  for (const auto& entry : std::filesystem::directory_iterator(o.log_dir)) {
    const std::string bytes = io::read_file(entry.path().string());
    ++files;
    for (size_t at = 0; (at = bytes.find("train/loss", at)) != std::string::npos; ++at) ++losses;
  }
  EXPECT_EQ(files, 2);
  EXPECT_EQ(losses, 3);
}

TEST(Trainer, ProfilesTheStepsThatItIsAskedFor) {
  for (const char* mesh : {"", "dp2"}) {
    const std::string dir = folder(str_cat("profile", mesh));
    io::make_folders(dir);
    TrainOptions o = options_in(dir + "/runs", 5);
    o.batch_size = 2;
    o.step.enabled = true;
    o.mesh = mesh;
    o.ranks = "threads";
    o.profile_steps = "2-4";
    o.profile_out = dir + "/steps.json";
    EXPECT_EQ(train(gpt::family(), o), 0);
    const testing::TraceFile trace(o.profile_out);
    trace.expect_sound();
    int64_t steps = 0;
    for (const io::Json& e : trace.of("X", "step")) steps += e.at("name") == "training step";
    EXPECT_EQ(steps, 3);
    EXPECT_FALSE(trace.of("X", "launch").empty());
    EXPECT_EQ(trace.of("f").empty(), *mesh == 0);
    o.resume = true;
    o.steps = 9;
    testing::expect_error([&] { train(gpt::family(), o); },
                          "--profile_steps: got 2-4; need steps from 6 on: the run resumes there");
  }
}

TEST(Trainer, RefusesToProfileStepsThatItDoesNotMake) {
  const auto refused = [](const std::string& steps, const std::string& out = "trace.json") {
    TrainOptions o = options_in(folder("range"), 5);
    o.profile_steps = steps;
    o.profile_out = out;
    return testing::error_of([&] { settle(gpt::family(), o); });
  };
  EXPECT_EQ(refused(""), "");
  EXPECT_EQ(refused("1-5"), "");
  for (const char* range :
       {"3-2", "0-2", "2-6", "2", "2-", "-2", "-", "a-b", "2-3-4", "2-3 ", "1-99999999999999999999"})
    EXPECT_EQ(refused(range), str_cat("--profile_steps: got '", range,
                                      "'; need A-B with 1 <= A <= B <= 5, the run's --steps; for example 1-3"));
  EXPECT_EQ(refused("1-2", "/no/such/folder/x.json"),
            "--profile_out: got '/no/such/folder/x.json'; need a file in a folder that exists");
  EXPECT_EQ(refused("", "x.json"), "--profile_out: got x.json; need --profile_steps as well");
}

TEST(TrainMain, OutOfMemoryNamesTheFlagsThatNeedLess) {
  Allocator& memory = Allocator::of(Device::cpu());
  memory.set_limit(memory.stats().live + (4 << 20));
  std::string args[] = {"train", "--config=gpt_tiny", "--data=synthetic", "--steps=1", "--batch_size=64"};
  std::vector<char*> argv;
  for (std::string& a : args) argv.push_back(a.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = train_main(static_cast<int>(argv.size()), argv.data(), gpt::family());
  memory.set_limit(0);
  ::testing::internal::GetCapturedStdout();
  const std::string error = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 1);
  EXPECT_NE(error.find("out of memory on cpu"), error.npos) << error;
  EXPECT_NE(error.find("; a smaller --batch_size or --seq_len"), error.npos) << error;
}

}  // namespace
}  // namespace weft::train
