// A bit of one rank's gradient is changed before the sum, which gives all ranks equal wrong states. The check of that
// step finds it and names the rank, and the run that continues has the bits of an undisturbed run. The test starts
// itself: `compute_check_test train RANK AT FLAGS...` is a training program that changes RANK's AT-th sum.
#include "models/train/compute_check.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "distributed/launch/compile.h"
#include "distributed/launch/processes.h"
#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "models/gpt/model.h"
#include "models/moe/model.h"
#include "models/train/testing/short_run.h"
#include "models/train/trainer.h"
#include "ops/core/core.h"

namespace weft::train {
namespace {

std::string self;

// Steps on equal meshes have one world, so another step gives access to the world of the trainer.
dist::World& world_on(const std::string& mesh) {
  using Fn = std::function<Tensor(const Tensor&)>;
  static auto* const steps = new std::map<std::string, Compiled<Fn>>;
  const auto it = steps->find(mesh);
  if (it != steps->end()) return it->second.world();
  auto step = dist::compile(Fn([](const Tensor& x) { return x + 1.0; }), {.mesh = dist::Mesh::parse(mesh)});
  step.prepare(ones({12}));
  return steps->emplace(mesh, std::move(step)).first->second.world();
}

// Changes bits of the sums of gradients of a rank.
struct Change {
  std::string mesh;
  int rank = 0;
  int64_t from = -1, until = -1;  // sums of the rank that are changed, from 0
  bool parameter = false;         // a bit of a parameter changes instead
  int64_t sums = 0;               // number of sums so far
  nn::LanguageModel* model = nullptr;

  ~Change() {
    if (model && dist::is_local(rank)) world_on(mesh).rank(rank).fault = {};
  }
  void arm(nn::LanguageModel& m) {
    model = &m;
    dist::World& world = world_on(mesh);
    if (!dist::is_local(rank)) return;
    RankContext& me = world.rank(rank);
    me.fault = [this, &me](const std::string& axes, const CommRequest& r) {
      const bool sum = (r.kind == Collective::kAllReduce || r.kind == Collective::kReduceScatter) &&
                       axes.find("dp") != axes.npos && r.in.nbytes() >= 512 && r.in.contiguous();
      const int64_t at = sum ? sums++ : -1;
      if (at >= from && at < until) parameter ? change_parameter() : change(r.in, me.operand_sums);
      return RankContext::Requests{{axes, r}};
    };
  }
  // The bit changes before the sum of the operand's words is taken, so the sum changes, too.
  void change(const StridedView& operand, std::vector<uint64_t>* operand_sums) const {
    uint64_t* const word = static_cast<uint64_t*>(operand.data) + from * 37 % (operand.nbytes() / 8);
    const uint64_t before = *word;
    *word ^= uint64_t{1} << (from * 11 % 30);
    if (operand_sums) operand_sums->back() += *word - before;
  }
  void change_parameter() const {
    auto* const cell = dynamic_cast<dist::ShardedCell*>(model->named_cells()[4].second.cell().remote.get());
    static_cast<uint8_t*>(cell->shards[rank]->value.view_for_kernel().data)[5] ^= 4;
  }
};

nn::ModelFamily changed(nn::ModelFamily family, std::vector<Change>& changes) {
  family.make = [make = family.make, &changes](const nn::ConfigMap& config) {
    auto model = make(config);
    for (Change& c : changes) c.arm(*model);
    return model;
  };
  return family;
}

TrainOptions options_of(const std::string& mesh, int64_t steps) {
  TrainOptions o = testing::short_run(mesh, steps, /*batch_size=*/12);
  o.config = "gpt_tiny";
  o.check_compute = 1;
  return o;
}

struct Outcome {
  std::string out, error;
};

Outcome train_here(const nn::ModelFamily& family, const TrainOptions& o) {
  ::testing::internal::CaptureStdout();
  const std::string error = testing::error_of([&] { EXPECT_EQ(train(family, o), 0); });
  return {::testing::internal::GetCapturedStdout(), error};
}

// The number of sums of each rank in one run of the step.
std::vector<int64_t> sums_of_run(const std::string& mesh) {
  TrainOptions o = options_of(mesh, 1);
  std::vector<Change> counts(static_cast<size_t>(dist::Mesh::parse(mesh).size()));
  for (size_t r = 0; r < counts.size(); ++r) counts[r].mesh = mesh, counts[r].rank = static_cast<int>(r);
  EXPECT_EQ(train_here(changed(gpt::family(), counts), o).error, "");
  std::vector<int64_t> sums;
  for (const Change& c : counts) sums.push_back(c.sums);
  return sums;
}

class WrongGradient : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Meshes, WrongGradient, ::testing::Values("dp2", "dp3", "fsdp2", "tp2,dp2"));

TEST_P(WrongGradient, IsFoundInItsStepOnEachRank) {
  constexpr int64_t kSteps = 4;
  const std::string mesh = GetParam(), dir = str_cat(::testing::TempDir(), "/compute_check_", mesh);
  io::remove_all(dir);
  TrainOptions o = options_of(mesh, kSteps);
  o.set = {{"dropout", "0.1"}};
  o.checkpoint_every = str_cat(kSteps);
  o.check_state_errors = "continue";
  const auto train_with = [&](const std::string& name, std::vector<Change> changes) {
    o.checkpoint_dir = dir + "/" + name;
    const Outcome got = train_here(changed(gpt::family(), changes), o);
    EXPECT_EQ(got.error, "") << name << "\n" << got.out;
    return got.out;
  };
  const auto bytes_of = [&](const std::string& name) {
    std::string all;
    for (const char* file : {"model", "optimizer"})
      all += io::read_file(str_cat(dir, "/", name, "/step_", kSteps, "/", file, ".safetensors"));
    return all;
  };
  const std::string quiet = train_with("quiet", {});
  ASSERT_EQ(quiet.find("wrong bits"), quiet.npos) << quiet;
  const std::vector<int64_t> sums = sums_of_run(mesh);
  for (int rank = 0; rank < static_cast<int>(sums.size()); ++rank) {
    const int64_t of_run = sums[rank];
    ASSERT_GT(of_run, 0);
    // The first step is made once, each other step twice: in a neighbour's place, and in its own.
    for (const int64_t run : {1, 2, 6}) {
      const std::string name = str_cat("rank ", rank, ", run ", run);
      const int64_t at = run * of_run + (rank + run) % of_run;
      const std::string out = train_with(name, {{.mesh = mesh, .rank = rank, .from = at, .until = at + 1}});
      testing::expect_has(out, str_cat("step ", 2 + (run - 1) / 2, ": rank ", rank, " on host "));
      testing::expect_has(out, " has computed wrong bits in operand ");
      testing::expect_has(out, " of its collectives; the step is made again");
      EXPECT_TRUE(bytes_of(name) == bytes_of("quiet")) << name;
      ASSERT_FALSE(HasFailure()) << name << "\n" << out;
    }
  }
}

TEST(ComputeCheck, AnErrorThatStaysStopsTheRun) {
  for (const std::string mesh : {"dp2", "dp3"})
    for (const char* errors : {"stop", "continue"}) {
      TrainOptions o = options_of(mesh, 5);
      o.check_state_errors = errors;
      std::vector<Change> change(1);
      change[0] = {.mesh = mesh, .rank = 1, .from = 2, .until = 1000};
      const Outcome got = train_here(changed(gpt::family(), change), o);
      testing::expect_has(got.error, "--check_compute: step 2: rank ");
      testing::expect_has(got.error, "; check this host, then continue with --resume");
      EXPECT_EQ(got.error.find("rank 0 on host") != got.error.npos, mesh == "dp2") << got.error;
      EXPECT_NE(got.error.find("rank 1 on host"), got.error.npos) << got.error;
      EXPECT_EQ(got.error.find("rank 2 on host"), got.error.npos) << got.error;
    }
}

TEST(ComputeCheck, LeavesAWrongStateToTheCheckOfTheState) {
  TrainOptions o = options_of("dp2", 9);
  o.check_state = 4;
  o.check_state_errors = "continue";
  std::vector<Change> change(1);
  const int64_t of_run = sums_of_run("dp2")[1], at = 9 * of_run + of_run / 2;  // in the first run of step 6
  change[0] = {.mesh = "dp2", .rank = 1, .from = at, .until = at + 1, .parameter = true};
  const Outcome got = train_here(changed(gpt::family(), change), o);
  EXPECT_EQ(got.error, "") << got.out;
  testing::expect_has(got.out, "differ; the run goes back to step 4 to find the wrong rank");
  testing::expect_has(got.out, ": rank 1 on host ");
  testing::expect_has(got.out, " has wrong bits in '");
  testing::expect_has(got.out, "; the run continues from the right state");
  EXPECT_EQ(got.out.find("computed"), got.out.npos) << got.out;
}

TEST(ComputeCheck, RaisesNoAlarm) {
  for (const std::string mesh : {"dp2", "dp3", "fsdp2", "tp2", "tp2,dp2", "pp2,dp2", "cp2", "dp2,ep2", "pp2"})
    for (const nn::ModelFamily* family : {&gpt::family(), &moe::family()}) {
      if (mesh == "dp2,ep2" && family->name == "gpt") continue;
      TrainOptions o = options_of(mesh, 12);
      o.config = family->name + "_tiny";
      o.check_state = 3;
      const Outcome got = train_here(*family, o);
      EXPECT_EQ(got.error, "") << mesh << ", " << family->name;
      EXPECT_EQ(got.out.find("differ"), got.out.npos) << got.out;
      EXPECT_EQ(got.out.find("--check_compute: no two ranks") != got.out.npos, mesh == "pp2") << mesh << "\n"
                                                                                              << got.out;
    }
}

TEST(ComputeCheck, NeedsAMesh) {
  TrainOptions o = options_of("", 3);
  EXPECT_EQ(testing::error_of([&] { settle(gpt::family(), o); }),
            "--check_compute: got 1; need --mesh: one device has no neighbour; --check_state makes steps of one device "
            "twice");
}

TEST(ComputeCheck, NamesTheRankAmongProcesses) {
  for (const std::string transport : {"shared", "gloo"}) {
    const std::string dir = str_cat(::testing::TempDir(), "/compute_check_", transport);
    io::remove_all(dir);
    io::make_folders(dir);
    const auto out_of = [&](int rank, int64_t at, const std::string& flags) {
      const std::string command =
          str_cat(self, " train ", rank, " ", at, " --config=gpt_tiny --data=synthetic --steps=6 --batch_size=12",
                  " --seq_len=8 --checkpoint_every=0 --sample=0 --mesh=dp3 --transport=", transport,
                  " --check_compute=2 ", flags, " > ", dir, "/out 2> ", dir, "/err");
      const int code = WEXITSTATUS(std::system(command.c_str()));
      return std::pair(code, io::read_file(dir + "/out") + io::read_file(dir + "/err"));
    };
    const auto [code, quiet] = out_of(0, -1, "");
    EXPECT_EQ(code, 0) << quiet;
    EXPECT_EQ(quiet.find("wrong bits"), quiet.npos) << quiet;
    const size_t at = quiet.find("sums: ");
    ASSERT_NE(at, quiet.npos) << quiet;
    const int64_t of_run = std::atoll(quiet.c_str() + at + 6) / 9;  // steps 2, 4 and 6 are made twice
    for (const int rank : {0, 2}) {
      const auto [stopped, text] = out_of(rank, 5 * of_run, "");  // step 4
      EXPECT_EQ(stopped, 1) << text;
      testing::expect_has(text, str_cat("--check_compute: step 4: rank ", rank, " on host "));
      const auto [on, note] = out_of(rank, 4 * of_run, "--check_state_errors=continue");
      EXPECT_EQ(on, 0) << note;
      testing::expect_has(note, str_cat("step 4: rank ", rank, " on host "));
    }
  }
}

}  // namespace

int child_main(int argc, char** argv) {
  const int64_t at = std::atoll(argv[3]);
  int code = 0;
  {
    std::vector<Change> change(1);
    change[0] = {.mesh = "dp3", .rank = std::atoi(argv[2]), .from = at, .until = at + (at >= 0)};
    argv[3] = argv[0];
    code = train_main(argc - 3, argv + 3, changed(gpt::family(), change));
    if (change[0].sums > 0) std::fprintf(stderr, "sums: %ld\n", change[0].sums);
    change[0].model = nullptr;  // the job has ended
  }
  return code;
}

}  // namespace weft::train

int main(int argc, char** argv) {
  using namespace weft::train;
  self = argv[0];
  if (argc > 1 && std::string(argv[1]) == "train") return child_main(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
