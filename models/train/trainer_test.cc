// Two runs on one folder of checkpoints, one after the other.
#include "models/train/trainer.h"

#include <gtest/gtest.h>

#include <utility>

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

TEST(Trainer, RefusesCheckpointsThatAppearWhileItStarts) {
  const std::string dir = folder("refuse");
  testing::expect_error([&] { train(after_another_run(options_in(dir, 2)), options_in(dir, 4)); },
                        "holds the checkpoints of an earlier run; add --resume to go on");
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
  EXPECT_NE(error.find("a smaller --batch_size or --seq_len"), error.npos) << error;
}

}  // namespace
}  // namespace weft::train
