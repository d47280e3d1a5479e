// A replay makes the steps of the views, and equals runs on meshes of these sizes one after the other.
#include "distributed/replica/replay.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "distributed/control/group/group.h"
#include "distributed/control/service/journal.h"
#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/gpt/model.h"
#include "models/train/trainer.h"

namespace weft::train {
namespace {

using control::ReplicaView;

std::string folder(const std::string& name) {
  const std::string dir = ::testing::TempDir() + "/replay_test_" + name;
  io::remove_all(dir);
  io::make_folders(dir);
  return dir;
}

// The journal of a service that made these views.
std::string journal(const std::string& dir, const std::vector<ReplicaView>& views) {
  const std::string path = dir + "/journal";
  control::GroupState state{.config = {.job = "test", .replicas = 3}};
  control::Journal file(path, control::title_of(state), [](const std::string&) { return "it is new"; });
  for (const ReplicaView& v : views) {
    const std::string record = control::record_of(v);
    EXPECT_EQ(control::commit(state, record), "");
    file.append(record);
  }
  return path;
}

std::vector<ReplicaView> three_two_three() {
  return {{1, 0, 0, {{"a", 1}, {"b", 1}, {"c", 1}}, ""},
          {2, 4, 1, {{"a", 1}, {"c", 1}}, ""},
          {3, 8, 2, {{"a", 1}, {"c", 1}, {"b", 2, true}}, ""}};
}

constexpr int64_t kRows = 2, kSteps = 10;

TrainOptions options(const std::string& dir, int64_t replicas, bool resume = false, const char* dim = "replica") {
  TrainOptions o;
  o.config = "gpt_tiny";
  o.data = "synthetic";
  o.steps = kSteps;
  o.batch_size = replicas * kRows;
  o.seq_len = 8;
  o.seed = 3;
  o.ranks = "threads";
  o.mesh = str_cat(dim, replicas);
  o.eval_every = 0;
  o.checkpoint_every = "2";
  o.keep = 0;
  o.checkpoint_dir = dir;
  o.metrics = dir + ".jsonl";
  o.resume = resume;
  return o;
}

// A run on dp of this size from the checkpoint of `from` at `step`, in a folder of its own.
std::string continued(const std::string& name, const std::string& from, int64_t step, int64_t replicas) {
  const std::string dir = folder(name) + "/run";
  if (step > 0) {
    io::make_folders(dir);
    const std::string at = str_cat("/step_", step);
    std::filesystem::copy(from + at, dir + at, std::filesystem::copy_options::recursive);
  }
  TrainOptions o = options(dir, replicas, step > 0, "dp");
  EXPECT_EQ(train(gpt::family(), o), 0);
  return dir;
}

void expect_same_tensors(const std::string& a, const std::string& b, int64_t step) {
  const std::string at = str_cat("/step_", step);
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
    EXPECT_EQ(io::read_file(a + at + file), io::read_file(b + at + file)) << step << file;
  const TrainState x = read_state(a + at), y = read_state(b + at);
  EXPECT_EQ(x.samples, y.samples);
}

// The losses of a metrics file, by step.
std::map<int64_t, std::string> losses(const std::string& dir) {
  std::map<int64_t, std::string> all;
  std::istringstream lines(io::read_file(dir + ".jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const io::Json j = io::parse_json(line, "metrics");
    std::string& text = all[j.at("step").get<int64_t>()];
    for (const char* field : {"loss", "grad_norm", "lr", "eval_loss"})
      if (j.contains(field)) text += str_cat(field, " ", j.at(field).dump(), " ");
  }
  return all;
}

TEST(Replay, EqualsRunsOnMeshesOfTheViews) {
  const std::string first = continued("first", "", 0, 3), second = continued("second", first, 4, 2),
                    third = continued("third", second, 8, 3);
  const std::string dir = folder("whole") + "/run";
  TrainOptions o = options(dir, 3);
  o.replay = journal(folder("views"), three_two_three());
  EXPECT_EQ(train(gpt::family(), o), 0);
  for (const int64_t step : {2, 4}) expect_same_tensors(dir, first, step);
  for (const int64_t step : {6, 8}) expect_same_tensors(dir, second, step);
  expect_same_tensors(dir, third, 10);
  const auto got = losses(dir), a = losses(first), b = losses(second), c = losses(third);
  ASSERT_EQ(got.size(), static_cast<size_t>(kSteps));
  for (const auto& [step, text] : got) EXPECT_EQ(text, (step <= 4 ? a : step <= 8 ? b : c).at(step)) << step;
  const std::vector<int64_t> views{1, 1, 2, 2, 3};
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(read_state(str_cat(dir, "/step_", 2 * i + 2)).state_view, views[i]);
  EXPECT_EQ(read_state(dir + "/step_10").samples, (4 * 3 + 4 * 2 + 2 * 3) * kRows);
}

// All processes died in view 3, and went on from the checkpoint of step 6: views 3 to 5 are not made.
TEST(Replay, DropsCancelledSteps) {
  std::vector<ReplicaView> views = three_two_three();
  views.push_back({4, 9, 3, {{"a", 1}, {"b", 2}}, ""});
  views.push_back({5, 12, 4, {{"b", 2}}, ""});
  views.push_back({6, 6, 2, {{"a", 2}, {"b", 3, true}}, ""});
  views.push_back({7, 8, 6, {{"a", 2}, {"b", 3}, {"c", 2, true}}, ""});
  const std::string cancelled = folder("cancelled") + "/run", plain = folder("plain") + "/run";
  TrainOptions o = options(cancelled, 3);
  o.replay = journal(folder("cancelled_views"), views);
  EXPECT_EQ(train(gpt::family(), o), 0);
  TrainOptions p = options(plain, 3);
  p.replay = journal(folder("plain_views"), three_two_three());
  EXPECT_EQ(train(gpt::family(), p), 0);
  for (const int64_t step : {2, 4, 6, 8, 10}) expect_same_tensors(cancelled, plain, step);
  EXPECT_EQ(losses(cancelled), losses(plain));
  EXPECT_EQ(read_state(cancelled + "/step_8").state_view, 6);
}

// A replay that begins at a checkpoint of the elastic run equals one from the start; all files but the views are equal.
TEST(Replay, ContinuesFromACheckpointOfTheRun) {
  const std::string path = journal(folder("resumed_views"), three_two_three());
  const std::string whole = folder("from_start") + "/run", part = folder("from_checkpoint") + "/run";
  TrainOptions o = options(whole, 3);
  o.replay = path;
  EXPECT_EQ(train(gpt::family(), o), 0);
  io::make_folders(part);
  std::filesystem::copy(whole + "/step_6", part + "/step_6", std::filesystem::copy_options::recursive);
  TrainOptions p = options(part, 3, /*resume=*/true);
  p.replay = path;
  EXPECT_EQ(train(gpt::family(), p), 0);
  for (const int64_t step : {8, 10}) {
    expect_same_tensors(part, whole, step);
    const std::string at = str_cat("/step_", step);
    for (const char* file : {"/state.json", "/run.flags"})
      EXPECT_EQ(io::read_file(part + at + file), io::read_file(whole + at + file));
  }
}

// Views do not change the evaluation, which is on the mesh of one replica. The bits repeat.
TEST(Replay, ALoneReplicaAndEvaluation) {
  const std::vector<ReplicaView> views{{1, 0, 0, {{"a", 1}, {"b", 1}, {"c", 1}}, ""}, {2, 3, 1, {{"b", 1}}, ""}};
  const std::string path = journal(folder("lone_views"), views);
  for (const char* inner : {"", ",fsdp2"}) {
    std::vector<std::string> dirs;
    for (const char* name : {"lone", "lone_again"}) {
      TrainOptions o = options(folder(name) + "/run", 3);
      o.mesh += inner;
      o.replay = path;
      o.eval_every = 2;
      EXPECT_EQ(train(gpt::family(), o), 0);
      dirs.push_back(o.checkpoint_dir);
    }
    expect_same_tensors(dirs[0], dirs[1], 10);
    EXPECT_EQ(losses(dirs[0]), losses(dirs[1]));
    EXPECT_EQ(read_state(dirs[0] + "/step_10").samples, (3 * 3 + 7 * 1) * kRows);
  }
}

TEST(Replay, RefusesOtherCheckpointsAndFlags) {
  const std::string path = journal(folder("refused_views"), three_two_three());
  const dist::Replay replay(path);
  const auto refused = [&](const dist::RunPosition& p) {
    return testing::error_of([&] { replay.check(p, kRows, {}); });
  };
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({.step = 6, .samples = 32, .view = 2}), "");
  testing::expect_has(refused({.step = 6, .samples = 32, .view = 3}),
                      "replay: the checkpoint of step 6 is of view 3, and the views of");
  testing::expect_has(refused({.step = 6, .samples = 36, .view = 2}),
                      "replay: the checkpoint of step 6 is at sample 36, and the views of");
  const std::string late = journal(folder("late_views"), {{7, 40, 6, {{"a", 1}}, ""}});
  testing::expect_has(testing::error_of([&] { dist::Replay(late).check({}, kRows, {}); }),
                      "begin at step 40, and this run at step 0; need a checkpoint of the elastic run");
  const std::string with_facts =
      journal(folder("views_with_facts"), {{1, 0, 0, {{"a", 1}}, "binary 7\n--lr 0.1\n--data a b\nthe data x 1\n"}});
  const auto other = [&](const std::vector<std::pair<std::string, std::string>>& facts) {
    return testing::error_of([&] { dist::Replay(with_facts).check({}, kRows, facts); });
  };
  EXPECT_EQ(other({{"--lr", "0.1"}, {"--data", "a b"}, {"the data", "x 1"}, {"--new", "flag"}}), "");
  testing::expect_has(other({{"--lr", "0.2"}}),
                      "are of a run with --lr 0.1, and this run has --lr 0.2; give the flags and the data of that run");
  testing::expect_has(other({{"--lr", "0.1"}, {"--data", "a"}}),
                      "are of a run with --data a b, and this run has --data a;");
  testing::expect_has(other({{"the data", "x 2"}}), "are of a run with the data x 1, and this run has the data x 2;");
  const auto settled = [&](const TrainOptions& options) {
    TrainOptions o = options;
    return testing::error_of([&] { settle(gpt::family(), o); });
  };
  TrainOptions o = options(folder("flags") + "/run", 3);
  o.replay = path;
  EXPECT_EQ(settled(o), "");
  TrainOptions uneven = o;
  uneven.batch_size = 7;
  testing::expect_has(settled(uneven),
                      "--mesh replica3: a batch of 7 (argument i32[7, 8]) does not divide over replica");
  TrainOptions lone = o;
  lone.mesh = "";
  testing::expect_has(settled(lone), "; need the --mesh of the elastic run, with replica3");
  o.replay = path + "2";
  testing::expect_has(settled(o), "--replay: ");
  io::write_file_atomic(o.replay, "no journal at all");
  testing::expect_has(settled(o), "is no journal of a coordination service");
}

TEST(Replay, TheStateOfAReplicaIsARecord) {
  const TrainState s{.step = 7,
                     .samples = 42,
                     .state_view = 3,
                     .seed = 18446744073709551615u,
                     .loss_scale = 1024,
                     .good_steps = 3,
                     .family = "gpt",
                     .model = {{"layers", "2"}},
                     .run = {{"lr", "1e-3"}}};
  const TrainState t = state_of(record_of(s));
  EXPECT_EQ(record_of(t), record_of(s));
  EXPECT_EQ(t.state_view, 3);
  EXPECT_EQ(t.seed, s.seed);
  testing::expect_error([] { state_of("{\"step\": -1}"); }, "the state of a replica");
}

}  // namespace
}  // namespace weft::train
