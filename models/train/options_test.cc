// Options of a training run. Commit 0848e293 wrote the files of testdata.
#include "models/train/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "distributed/launch/held_memory.h"
#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "models/moe/config.h"
#include "models/train/checkpoint.h"

namespace weft::train {
namespace {

std::string folder(const std::string& name) {
  const std::string dir = ::testing::TempDir() + "options_test_" + name;  // TempDir() ends with a slash
  io::remove_all(dir);
  io::make_folders(dir);
  return dir;
}

// A folder with the checkpoint of an earlier version, as far as settle() reads it.
std::string earlier_run(const std::string& name) {
  const std::string dir = folder(name);
  io::make_folders(dir + "/step_5");
  io::write_file_atomic(dir + "/step_5/state.json", io::read_file("models/train/testdata/state_0848e293.json"));
  io::write_file_atomic(dir + "/step_5/model.safetensors", "");
  return dir;
}

TEST(Options, ARunOfAnEarlierVersionResumesWithItsFlags) {
  TrainOptions o;
  o.checkpoint_dir = earlier_run("resume");
  o.resume = true;
  const auto s = settle(moe::family(), o);
  EXPECT_EQ(s.resumed, o.checkpoint_dir + "/step_5");
  EXPECT_EQ(s.config_name, "moe_tiny");
  // Fields that the earlier version did not have keep the values of the preset.
  const nn::ConfigMap before = read_state(s.resumed).model, preset = moe::family().preset("moe_tiny");
  for (const auto& [field, value] : s.config)
    EXPECT_EQ(value, before.contains(field) ? before.at(field) : preset.at(field)) << field;
  for (const auto& [field, value] : before) EXPECT_TRUE(s.config.contains(field)) << field;
  EXPECT_EQ(o.asked_microbatches, 2);
  EXPECT_EQ(o.microbatches, 2);
  EXPECT_EQ(o.batch_size, 4);
  EXPECT_EQ(o.seq_len, 16);
  EXPECT_EQ(o.steps, 24);
  EXPECT_EQ(o.warmup, 1);
  EXPECT_EQ(o.lr, 0.01);
  EXPECT_EQ(o.seed, 7u);
  EXPECT_EQ(o.data, "synthetic");
}

TEST(Options, AGivenFlagReplacesTheResumedRuns) {
  TrainOptions o;
  o.checkpoint_dir = earlier_run("given");
  o.resume = true;
  o.microbatches = 4;
  settle(moe::family(), o);
  EXPECT_EQ(o.microbatches, 4);
  EXPECT_EQ(o.batch_size, 4);
}

TEST(Options, ABatchForAPipelineHasMicrobatches) {
  const std::tuple<const char*, const char*, int64_t, const char*> rows[] = {
      {"dp2,pp2", "1f1b", 11, "mesh dp2,pp2 and --pipeline 1f1b require, such as 12"},
      {"pp2", "1f1b", 1, "mesh pp2 and --pipeline 1f1b require, such as 2"},
      {"pp2", "1f1b", 11, ""},
      {"dp2,pp2", "1f1b", 12, ""},
  };
  for (const auto& [mesh, pipeline, batch, need] : rows) {
    TrainOptions o;
    o.mesh = mesh;
    o.step.plan.pipeline = pipeline;
    o.batch_size = batch;
    const std::string error = testing::error_of([&] { settle(moe::family(), o); });
    const std::string want =
        str_cat("--batch_size: got ", batch, "; need a batch that 2 or more microbatches divide as ");
    EXPECT_EQ(error, *need ? want + need : "") << mesh << " " << batch;
  }
}

TEST(Options, SetGivesFieldsOfTheConfiguration) {
  TrainOptions o;
  o.config = "moe_tiny";
  o.data = "synthetic";
  o.checkpoint_every = "0";
  o.set = {{"capacity_factor", "1.250"}, {"route", "zipf:1.1"}};
  nn::ConfigMap want = moe::family().preset("moe_tiny");
  want["capacity_factor"] = "1.25";
  want["route"] = "zipf:1.1";
  EXPECT_EQ(settle(moe::family(), o).config, want);
  const auto refused = [&](const Settings& fields) {
    o.set = fields;
    return testing::error_of([&] { settle(moe::family(), o); });
  };
  EXPECT_EQ(refused({{"aux_los", "1"}}).substr(0, 60), "--set: no field 'aux_los' (did you mean aux_loss?); need one");
  EXPECT_EQ(refused({{"aux_loss", "-1"}}), "--set: field 'aux_loss' is '-1'; need a number, 0 or more");
  EXPECT_EQ(refused({{"layers", "two"}}), "--set: field 'layers' is 'two'; need a whole number");
}

TEST(Options, AResumedRunKeepsItsModel) {
  TrainOptions o;
  o.checkpoint_dir = earlier_run("model");
  o.resume = true;
  o.set = {{"capacity_factor", "0.50"}};
  EXPECT_EQ(settle(moe::family(), o).config.at("bias_rate"), "0.25");
  o.set = {{"bias_rate", "0.5"}};
  EXPECT_EQ(testing::error_of([&] { settle(moe::family(), o); }),
            str_cat("--set: got bias_rate=0.5; need 0.25, as the resumed run in ", o.checkpoint_dir,
                    " has it, or another --checkpoint_dir"));
}

TEST(Options, StatesInMemoryNeedAPlaceThatOutlivesProcesses) {
  TrainOptions o;
  o.checkpoint_dir = folder("memory");
  o.memory_every = "auto";
  const auto refused = [&] { return testing::error_of([&] { settle(moe::family(), o); }); };
  EXPECT_EQ(refused(),
            "--memory_every: got auto; need --restarts above 0, whose launcher holds the memory, or "
            "--memory_dir with a folder in memory");
  ::setenv("JOB_NO_MEMORY", "memfd_create: Permission denied", 1);
  EXPECT_EQ(refused(),
            "--memory_every: got auto; need --memory_dir with a folder in memory: the launcher cannot hold memory "
            "(memfd_create: Permission denied)");
  ::unsetenv("JOB_NO_MEMORY");
  o.restarts = 1;
  EXPECT_EQ(settle(moe::family(), o).memory, "");  // the launcher has no ranks
  o.restarts = 0;
  const dist::HeldMemory held(1);
  for (const auto& [path, is_held] : {std::pair(held.path(), true), {folder("of_a_user"), false}}) {
    ::setenv("JOB_MEMORY", path.c_str(), 1);
    if (is_held)
      EXPECT_TRUE(settle(moe::family(), o).memory.starts_with(path + "/weft-")) << "two runs have one folder";
    else
      EXPECT_NE(refused(), "");
  }
  ::unsetenv("JOB_MEMORY");
  std::string dirs;
  for (const char* same : {"/r/a", "/r/a/", "/r//./a/."}) {
    TrainOptions other;
    other.checkpoint_dir = same;
    dirs += settle(moe::family(), other).dir + " ";
  }
  EXPECT_EQ(dirs, "/r/a /r/a /r/a ");
  o.memory_dir = folder("states");
  const auto setup = settle(moe::family(), o);
  EXPECT_TRUE(setup.memory.starts_with(o.memory_dir + "/weft-")) << setup.memory;
  EXPECT_EQ(setup.memory_every, -1);
  o.checkpoint_dir += "2";
  EXPECT_NE(settle(moe::family(), o).memory, setup.memory) << "two runs have one folder";
  o.checkpoint_dir.pop_back();
  o.memory_every = "-1";
  EXPECT_EQ(refused(), "--memory_every: got '-1'; need a number of steps, 0 or auto");
  o.memory_every = "0";
  EXPECT_EQ(refused(), str_cat("--memory_dir: got ", o.memory_dir, "; need --memory_every as well"));
  o.memory_every = "2";
  o.checkpoint_every = "0";
  EXPECT_EQ(refused(),
            "--memory_every: got 2; need --checkpoint_every above 0 or auto: states in memory are gone when "
            "the host is");
  o.checkpoint_every = "auto";

  // The newest state counts; of equal ones the state in memory. A state in memory follows from the newest checkpoint.
  const auto save = [&](const std::string& dir, int64_t step) {
    save_checkpoint(dir, {.step = step, .family = "moe"}, {}, {}, 0);
  };
  save(setup.memory, 3);
  EXPECT_EQ(refused(), str_cat("--memory_dir: ", setup.memory,
                               " has states of an earlier run; add --resume to continue, "
                               "or remove it"));
  o.resume = true;
  const std::string run = std::filesystem::absolute(o.checkpoint_dir).lexically_normal().string();
  for (const auto& [dir, step, known, want] : {std::tuple(o.checkpoint_dir, 2, 2, setup.memory + "/step_3"),
                                               {o.checkpoint_dir, 2, -1, o.checkpoint_dir + "/step_2"},
                                               {o.checkpoint_dir, 3, 3, setup.memory + "/step_3"},
                                               {o.checkpoint_dir, 4, 4, o.checkpoint_dir + "/step_4"},
                                               {setup.memory, 5, 4, setup.memory + "/step_5"},
                                               {setup.memory, 5, 3, o.checkpoint_dir + "/step_4"}}) {
    save(dir, step);
    io::write_file_atomic(setup.memory + "/saved", str_cat(known, " ", run));
    EXPECT_EQ(settle(moe::family(), o).resumed, want) << step << " " << known;
  }
  io::write_file_atomic(setup.memory + "/saved", "4 /another/run");  // the folder was renamed
  EXPECT_EQ(settle(moe::family(), o).resumed, o.checkpoint_dir + "/step_4");
  std::filesystem::permissions(setup.memory, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
  EXPECT_EQ(refused(), str_cat("--memory_dir: ", setup.memory,
                               " is not a folder that this user alone may write to; move "
                               "it away, or name another folder"));
}

// Earlier versions read the files that this one writes.
TEST(Options, StateKeepsTheKeyOfMicrobatches) {
  const std::string dir = folder("key");
  const TrainState state{.step = 1, .family = "moe", .run = {{"microbatches", "2"}, {"steps", "3"}}};
  const std::string path = save_checkpoint(dir, state, {}, {}, 0);
  const std::string text = io::read_file(state_path(path));
  EXPECT_NE(text.find("\"grad_accum\": \"2\""), text.npos) << text;
  EXPECT_EQ(text.find("microbatches"), text.npos) << text;
  EXPECT_EQ(read_state(path).run, state.run);
}

TEST(Options, APlanOfAnEarlierVersionIsUsed) {
  TrainOptions o;
  o.plan = "models/train/testdata/plan_0848e293.plan";
  o.data = "synthetic";
  o.checkpoint_every = "0";
  const auto s = settle(moe::family(), o);
  EXPECT_NE(s.saved_hash, 0u);
  EXPECT_EQ(o.step.mesh.to_string(), "dp2,tp2");
  EXPECT_EQ(o.step.plan.zero, 1);
  EXPECT_EQ(o.step.plan.wire, "bf16");
  EXPECT_FALSE(o.step.plan.sequence);
  EXPECT_EQ(o.step.plan.rules.size(), 15u);
}

TEST(Options, FlagsCompareByValue) {
  EXPECT_TRUE(is_same_flag("lr", "1e-3", "0.001"));
  EXPECT_FALSE(is_same_flag("lr", "0.001", "0.002"));
  EXPECT_TRUE(is_same_flag("dtype", "f32", "f32"));
  EXPECT_FALSE(is_same_flag("no_flag", "1.0", "1"));
}

TEST(Options, OptionsOfStrategiesAreFlags) {
  TrainOptions o;
  std::map<std::string, Flag> flags;
  for (const Flag& flag : train_flags(o)) flags.emplace(flag.name, flag);
  for (const char* name : {"zero", "cp", "cp_layout", "pipeline", "pipeline_gather", "stages", "wire", "sequence"}) {
    ASSERT_TRUE(flags.contains(name)) << name;
    EXPECT_TRUE(flags.at(name).help.starts_with("with --mesh")) << flags.at(name).help;
  }
  EXPECT_FALSE(flags.contains("keep_gathered") || flags.contains("expert_room"));
  EXPECT_TRUE(set_flag(flags.at("zero"), "2") && set_flag(flags.at("sequence"), "false") &&
              set_flag(flags.at("cp"), "ring"));
  EXPECT_EQ(std::tie(o.step.plan.zero, o.step.plan.sequence, o.step.plan.cp), std::tuple(2, false, "ring"));
}

TEST(Options, AnOptionThatTheSavedPlanContradicts) {
  const auto refused = [](const char* flag, const char* value) {
    TrainOptions o;
    for (const Flag& f : train_flags(o))
      if (f.name == flag) *f.given = set_flag(f, value);
    o.plan = "models/train/testdata/plan_0848e293.plan";
    o.checkpoint_every = "0";
    return testing::error_of([&] { settle(moe::family(), o); });
  };
  EXPECT_EQ(refused("zero", "1"), "");
  EXPECT_EQ(refused("wire", "bf16"), "");
  const std::string has = "drop the flag: --plan models/train/testdata/plan_0848e293.plan has ";
  EXPECT_EQ(refused("zero", "2"), str_cat("--zero: got 2; ", has, "zero 1"));
  EXPECT_EQ(refused("wire", "f32"), str_cat("--wire: got f32; ", has, "wire bf16"));
  EXPECT_EQ(refused("sequence", "true"), str_cat("--sequence: got on; ", has, "sequence off"));
  EXPECT_EQ(refused("zero", "4"), "--zero: got 4; need a stage from 0 to 3");
  EXPECT_EQ(refused("cp", "rings"), "--cp: got 'rings'; need allgather, ring or ulysses");
}

// A replica of a group has a mesh with this dimension, and flags that work with replicas that may die.
TEST(Options, FlagsOfReplicas) {
  const auto refused = [](const std::function<void(TrainOptions&)>& change) {
    TrainOptions o;
    o.mesh = "replica2,dp2";
    o.batch_size = 8;
    o.data = "synthetic";
    o.checkpoint_dir = ::testing::TempDir() + "/replica_options";
    change(o);
    return testing::error_of([&] { settle(moe::family(), o); });
  };
  const auto expect_has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const auto on_one_host = [&](const std::function<void(TrainOptions&)>& change) {
    return refused([&](TrainOptions& o) { o.restarts = 1, change(o); });
  };
  EXPECT_EQ(on_one_host([](TrainOptions&) {}), "");
  expect_has(on_one_host([](TrainOptions& o) { o.check_state = 1; }), "--check_state: got 1; need no replicas");
  expect_has(on_one_host([](TrainOptions& o) { o.memory_every = "1"; }), "--memory_every: got 1; need no");
  expect_has(on_one_host([](TrainOptions& o) { o.profile_steps = "1-2"; }), "--profile_steps: got 1-2; need");
  EXPECT_EQ(refused([](TrainOptions& o) { o.check_state = 1; }), "");
  ::setenv("REPLICAS", "127.0.0.1:29600", 1);
  expect_has(refused([](TrainOptions&) {}), "and REPLICA is not set");
  ::setenv("REPLICA", "a", 1);
  EXPECT_EQ(refused([](TrainOptions&) {}), "");
  expect_has(refused([](TrainOptions& o) { o.mesh = ""; }), "--mesh: got no mesh; need a dimension replica");
  expect_has(refused([](TrainOptions& o) { o.mesh = "dp2"; }), "--mesh: got dp2; need a dimension replica");
  expect_has(refused([](TrainOptions& o) { o.checkpoint_dir = ""; }), "--checkpoint_dir: got none; need one");
  ::unsetenv("REPLICAS");
  ::unsetenv("REPLICA");
}

TEST(Options, FlagsOfDiloco) {
  train::Setup setup;
  const auto refused = [&](const std::function<void(TrainOptions&)>& change) {
    TrainOptions o;
    o.mesh = "replica2,dp2";
    o.batch_size = 8;
    o.steps = 100;
    o.diloco = 10;
    o.data = "synthetic";
    o.checkpoint_dir = ::testing::TempDir() + "/diloco_options";
    change(o);
    return testing::error_of([&] { setup = settle(moe::family(), o); });
  };
  const auto expect_has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(refused([](TrainOptions& o) { o.outer_fragments = 2, o.outer_delay = 4, o.outer_wire = "int4"; }), "");
  ASSERT_TRUE(setup.outer);
  EXPECT_EQ(setup.rows, 4);
  EXPECT_EQ(setup.outer->exchanges(), 20);
  EXPECT_EQ(refused([](TrainOptions& o) { o.diloco = 0, o.outer_delay = 2; }),
            "--outer_delay: got 2; need --diloco above 0 as well");
  expect_has(refused([](TrainOptions& o) { o.mesh = "dp2"; }),
             "--mesh: got dp2; need a dimension replica: --diloco is");
  expect_has(refused([](TrainOptions& o) { o.mesh = "replica2,pp2"; }), "need a mesh without pp");
  expect_has(refused([](TrainOptions& o) { o.ranks = "threads"; }), "--diloco: got 10; need --restarts above 0");
  expect_has(refused([](TrainOptions& o) { o.checkpoint_every = "0"; }), "--diloco: got 10; need --restarts above 0");
  expect_has(refused([](TrainOptions& o) { o.checkpoint_every = "0", o.restarts = 2; }),
             "--checkpoint_every: got 0; need a number above 0 or auto: this process restarts the replicas of --dil");
  EXPECT_EQ(refused([](TrainOptions& o) { o.outer_rows = 6, o.microbatches = 2, o.mesh = "replica2"; }), "");
  EXPECT_EQ(setup.rows, 6);
  EXPECT_EQ(refused([](TrainOptions& o) { o.outer_rows = 5, o.microbatches = 2; }),
            "--outer_rows: got 5; need a multiple of 2, the microbatches");
  expect_has(refused([](TrainOptions& o) { o.outer_rows = 6, o.microbatches = 2; }),
             " (a microbatch: 6 of --outer_rows / 2 microbatches)");
  expect_has(refused([](TrainOptions& o) { o.steps = 105; }), "--steps: got 105; need a multiple of 10");
  expect_has(refused([](TrainOptions& o) { o.outer_fragments = 3; }), "--outer_fragments: got 3; need a divisor of 10");
  EXPECT_EQ(refused([](TrainOptions& o) { o.outer_fragments = 5, o.outer_delay = 9; }), "");
  expect_has(refused([](TrainOptions& o) { o.outer_fragments = 5, o.outer_delay = 10; }),
             "--outer_delay: got 10; need 0 or more, below 10");
  expect_has(refused([](TrainOptions& o) { o.outer_wire = "i8"; }), "--outer_wire: got 'i8'; need f32, bf16, int8 or");
}

TEST(Options, FlagsOfCheckpointsNeedCheckpoints) {
  const auto refused = [](const std::map<std::string, std::string>& flags) {
    TrainOptions o;
    o.config = "moe_tiny";
    o.data = "synthetic";
    o.checkpoint_dir = folder("checkpoints");
    for (const Flag& f : train_flags(o))
      if (const auto given = flags.find(f.name); given != flags.end()) *f.given = set_flag(f, given->second);
    return testing::error_of([&] { settle(moe::family(), o); });
  };
  EXPECT_EQ(refused({{"mtbf", "0.5"}, {"checkpoint_async", "true"}, {"checkpoint_errors", "stop"}}), "");
  EXPECT_EQ(refused({{"checkpoint_every", "5"}, {"checkpoint_async", "true"}, {"checkpoint_errors", "warn"}}), "");
  EXPECT_EQ(refused({{"checkpoint_every", "5"}, {"mtbf", "12"}}),
            "--mtbf: got 12; need --checkpoint_every auto as well");
  EXPECT_EQ(refused({{"checkpoint_errors", "ignore"}}), "--checkpoint_errors: got 'ignore'; need warn or stop");
  const std::string need = "; need --checkpoint_every above 0 or auto";
  EXPECT_EQ(refused({{"checkpoint_every", "0"}, {"checkpoint_errors", "stop"}}),
            "--checkpoint_errors: got stop" + need);
  EXPECT_EQ(refused({{"checkpoint_every", "0"}, {"checkpoint_async", "true"}}), "--checkpoint_async: got true" + need);
}

}  // namespace
}  // namespace weft::train
