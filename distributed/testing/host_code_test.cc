// Host code in jobs of real processes: save(), reads of sharded parameters, different steps, a stopped rank. The test
// starts itself for each rank:
//     host_code_test MODE FOLDER
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "distributed/diagnose/diagnosis.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/job.h"
#include "distributed/launch/launcher.h"
#include "distributed/launch/processes.h"
#include "distributed/testing/child.h"
#include "weft.h"

namespace weft::testing {
namespace {

std::string self;

struct Model : nn::Module {
  nn::Linear in, out;
  Model() : in(16, 48), out(48, 16) { register_module("in", in), register_module("out", out); }
  Tensor loss(const Tensor& x) const { return mse_loss(out(gelu(in(x))), x); }
};

// Runs one process. Writes its findings to FOLDER/found.RANK.
void train(const std::string& mode, const std::string& folder) {
  manual_seed(mode == "seed" && std::getenv("RANK") == std::string("1") ? 4 : 3);
  Model model;
  optim::AdamW optimizer(model.parameters());
  auto step = dist::compile(
      [&](Tensor x) {
        const Tensor loss = model.loss(x);
        optimizer.minimize(loss);
        return loss;
      },
      {.mesh = dist::Mesh::parse(mode == "pairs" ? "fsdp4" : "fsdp2"), .timeout = 20});
  const std::string rank = std::getenv("RANK"), path = folder + "/model.safetensors";
  const Tensor x = ones({mode == "shape" && rank == "1" ? 4 : 8, 16});
  step(mode == "values" && rank == "1" ? x * 2 : x);
  std::ofstream found(folder + "/found." + rank);
  if (mode == "all") {
    save(model, path);
    save(optimizer, folder + "/optimizer.safetensors");
    const nn::StateDict values = load(path), want = model.state_dict();
    bool same = values.size() == want.size() && !load(folder + "/optimizer.safetensors").empty();
    for (const auto& [name, value] : want) same &= equal(values.at(name), value);
    found << (same ? "same" : "another") << ", " << (dist::is_first() ? "first" : "other") << "\n";
    try {
      save(model, folder + "/no/such/folder/x");
    } catch (const Error& e) {
      found << e.what() << "\n";
    }
    step(x);  // the job continues
    found << "done\n";
  } else if (mode == "save") {
    if (dist::is_first()) save(model, path);
  } else if (mode == "stop") {
    if (rank == "1") kill(getpid(), SIGSTOP);
    step(x);
  } else if (mode == "plain") {
    if (dist::is_first()) save(x, path);
  } else if (mode == "item") {
    if (dist::is_first()) model.in.weight.sum().item<float>();
  } else if (dist::is_first()) {  // the other process is in the next step
    save(model, path);
  }
  if (mode == "step" || mode == "pairs") step(x);
}

struct Outcome {
  int code = 0;
  std::string error;
};

Outcome run(const std::string& mode, const std::string& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string error = folder + "/error";
  const pid_t pid = fork();
  if (pid == 0) {
    setenv("JOB_FLIGHT", (folder + "/flight").c_str(), 1);
    setenv("WEFT_THREADS", "1", 1);
    dup2(open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    _exit(dist::launch({.processes = 2, .command = {self, mode, folder}, .name = "job"}).code);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content(error)};
}

std::string folder_of(const std::string& mode) { return str_cat(::testing::TempDir(), "/", mode); }

TEST(Save, AllWriteAndAllCanRead) {
  const std::string folder = folder_of("all");
  const Outcome o = run("all", folder);
  EXPECT_EQ(o.code, 0) << o.error;
  const std::string first = content(folder + "/found.0"), second = content(folder + "/found.1");
  EXPECT_TRUE(first.starts_with("same, first\n")) << first;
  EXPECT_TRUE(second.starts_with("same, other\n")) << second;
  EXPECT_TRUE(first.ends_with("done\n"));
  // All processes get one error, and no file is written.
  EXPECT_EQ(first.substr(first.find('\n')), second.substr(second.find('\n')));
  EXPECT_TRUE(has(first, "/no/such/folder/x")) << first;
  EXPECT_TRUE(has(first, "No such file or directory; at distributed/testing/host_code_test.cc:")) << first;
}

TEST(Save, OnTheFirstProcessAloneIsNamed) {
  for (const std::string mode : {"save", "item", "step", "plain"}) {
    const Outcome o = run(mode, folder_of(mode));
    EXPECT_EQ(o.code, 1) << mode;
    const std::string what = mode == "item" ? "reading the sharded parameter 'in.weight'" : "save";
    const std::string hint = "call it on all ranks (save, state_dict and item too), not under if (is_first())";
    const std::string place = "distributed/testing/host_code_test.cc:";
    EXPECT_TRUE(has(o.error, hint)) << mode << ": " << o.error;
    if (mode == "step") {  // the launcher finds it, since both would wait forever
      EXPECT_TRUE(has(o.error, str_cat("is in ", what, " at ", place))) << o.error;
    } else {
      EXPECT_TRUE(has(o.error, str_cat(what, " is a collective: ", hint))) << mode << ": " << o.error;
      EXPECT_TRUE(has(o.error, str_cat("; at ", place))) << mode << ": " << o.error;
    }
  }
}

// Both ranks of a process are at the same place: the missing rank is in the other process.
TEST(Save, OnTheFirstOfProcessesWithSeveralRanksIsNamed) {
  const Outcome o = run("pairs", folder_of("pairs"));
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(has(o.error, "which is a collective, and rank 2 is not: call it on all ranks")) << o.error;
}

// After the launcher has killed a stopped rank, its records look like a dead rank's records.
TEST(Diagnosis, KeepsTheVerdictOfTheLauncher) {
  const std::string folder = folder_of("stop");
  const Outcome o = run("stop", folder);
  EXPECT_NE(o.code, 0);
  EXPECT_TRUE(has(o.error, "job: stopped: rank 1 (host ")) << o.error;
  const dist::diagnose::Diagnosis d = dist::diagnose::diagnose(dist::diagnose::read_job(folder + "/flight"));
  EXPECT_TRUE(d.launcher.starts_with("stopped: rank 1 (host ")) << d.to_string();
  EXPECT_TRUE(has(o.error, d.launcher + "\n")) << d.to_string();
  EXPECT_NE(d.fault, dist::diagnose::Fault::kStopped);
  EXPECT_TRUE(d.to_string().starts_with("the launcher, when the job failed: stopped: rank 1 ")) << d.to_string();
  EXPECT_TRUE(has(d.to_json(), "\"launcher\": \"stopped: rank 1 ")) << d.to_json();
}

// The first call of a step names the different values as they are in the program's text.
TEST(FirstCall, NamesWhatDiffers) {
  const std::string used = "argument 0, first used at distributed/testing/host_code_test.cc:";
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"seed", {"the seed is 4 on rank 1 and 3 on rank 0; need the same model"}},
      {"shape", {used, ", is f32[4, 16] on rank 1 and f32[8, 16] on rank 0; need the same model"}},
      {"values", {used, ", is f32[8, 16] with checksum ", "; need the same whole batch in all processes"}}};
  for (const auto& [mode, parts] : cases) {
    const Outcome o = run(mode, folder_of(mode));
    EXPECT_EQ(o.code, 1) << mode;
    for (const std::string& part : parts) EXPECT_TRUE(has(o.error, part)) << mode << ": " << o.error;
    EXPECT_EQ(std::count(o.error.begin(), o.error.end(), '\n'), 1) << o.error;
  }
}

}  // namespace

int child(const std::string& mode, const std::string& folder) {
  return run_child([&](std::unique_ptr<dist::Job>& job) {
    job = std::make_unique<dist::Job>(
        dist::JobOptions{.ranks = mode == "pairs" ? 4 : 2, .timeout = std::chrono::seconds(mode == "pairs" ? 5 : 20)});
    train(mode, folder);
  });
}

}  // namespace weft::testing

int main(int argc, char** argv) {
  if (argc == 3) return weft::testing::child(argv[1], argv[2]);
  weft::testing::self = argv[0];
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
