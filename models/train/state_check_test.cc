// Bits of one rank's state are changed, between steps and inside them. The next check finds each change that makes the
// state wrong, and names the right rank, also of two. The run that continues has the bits of an undisturbed run. The
// test starts itself: `state_check_test ranks MESH OUT` is a process of a job of such runs, and `state_check_test train
// RANK AT FLAGS...` is a training program in which a bit of RANK changes at its AT-th collective.
#include "models/train/state_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

#include "distributed/launch/compile.h"
#include "distributed/launch/launcher.h"
#include "distributed/launch/processes.h"
#include "framework/base/testing/error_of.h"
#include "framework/dispatch/rank/rank.h"
#include "framework/dispatch/state/generator.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "models/gpt/model.h"
#include "models/moe/model.h"
#include "models/optim/optim.h"
#include "models/train/testing/short_run.h"
#include "models/train/trainer.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::train {
namespace {

std::string self;

dist::ShardedCell* shards_of(const CellHandle& cell) {
  return dynamic_cast<dist::ShardedCell*>(cell.cell().remote.get());
}

void flip(const Tensor& value, uint64_t bit) {
  bit %= static_cast<uint64_t>(value.type().nbytes()) * 8;
  static_cast<uint8_t*>(value.view_for_kernel().data)[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
}

constexpr gpt::Config kModel = {
    .vocab = 48, .context = 8, .layers = 2, .heads = 2, .dim = 16, .ffn = 32, .dropout = 0.1};

// A training loop with the calls of the trainer.
class Training {
 public:
  Training(const std::string& mesh, const StateCheckOptions& options)
      : model_(seeded(kModel)),
        optimizer_(model_.parameters(), {.lr = 1e-2}),
        cells_(model_.named_cells()),
        step_(dist::compile(Step([this](const Tensor& x, const Tensor& y) { return train_step(x, y); }),
                            {.mesh = dist::Mesh::parse(mesh)})) {
    for (auto& cell : optimizer_.named_cells()) cells_.push_back(std::move(cell));
    cells_.emplace_back("rng.seed", default_generator().seed);
    cells_.emplace_back("rng.step", default_generator().step);
    if (mesh.empty()) {
      check_.emplace(cells_, options);
      return;
    }
    step_.prepare(tokens(0), tokens(1));
    dist::PlanReport plan = step_.plan("cpu");
    const int64_t peak = plan.peak_bytes();
    check_.emplace(cells_, options, &world(), &plan);
    EXPECT_EQ(plan.peak_bytes(), peak + plan.estimate().cell_bytes);
  }

  dist::World& world() { return step_.world(); }
  const NamedCells& cells() const { return cells_; }
  std::map<int64_t, std::function<void()>> before;  // functions by step; each is called once
  std::map<int64_t, std::function<void()>> after;
  std::vector<std::string> notes;
  TrainState state;

  void run_to(int64_t end) {
    while (state.step < end) {
      if (const auto event = before.extract(state.step + 1)) event.mapped()();
      optimizer_.set_lr(1e-2 / static_cast<double>(state.step + 1));
      const std::vector<Tensor> out = step_(tokens(state.samples), tokens(state.samples + 1));
      if (!out[1].item<bool>()) {
        ASSERT_FALSE(passes()) << "step " << state.step + 1 << " is not finite, and the copies are equal";
        continue;
      }
      ++state.step, state.samples += 12;
      if (const auto event = after.extract(state.step)) event.mapped()();
      if (check_->due(state.step, false)) passes();
    }
  }

  // The bits of all cells on the ranks of this process.
  uint64_t bits() const {
    io::Checksum sum;
    const auto add = [&](const Tensor& t) {
      if (t.defined())
        sum.update({static_cast<const std::byte*>(t.view_for_kernel().data), static_cast<size_t>(t.type().nbytes())});
    };
    for (const auto& [name, cell] : cells_) {
      if (!shards_of(cell)) add(cell.cell().value);
      if (shards_of(cell))
        for (const Ref<Cell>& shard : shards_of(cell)->shards) add(shard->value);
    }
    return sum.value();
  }

 private:
  using Step = std::function<std::vector<Tensor>(const Tensor&, const Tensor&)>;

  static const gpt::Config& seeded(const gpt::Config& config) {
    manual_seed(3);
    return config;
  }
  bool passes() {
    return check_->passes(state, [this](const std::string& text) { notes.push_back(text); });
  }
  std::vector<Tensor> train_step(const Tensor& x, const Tensor& y) {
    const Tensor loss = model_.loss(x, y).loss;
    auto [g, norm] = optim::clip_grad_norm(grad(loss, optimizer_.parameters()), 1.0);
    const Tensor ok = logical_and(isfinite(loss), isfinite(norm));
    commit_if(ok);
    optimizer_.step(g);
    return {loss, ok};
  }
  static Tensor tokens(int64_t position) {
    std::mt19937 random(static_cast<uint32_t>(position));
    std::vector<int32_t> ids(12 * 8);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 48);
    return Tensor::from_vector<int32_t>(ids, {12, 8});
  }

  gpt::Model model_;
  optim::AdamW optimizer_;
  NamedCells cells_;
  Compiled<Step> step_;
  std::optional<StateCheck> check_;
};

struct Found {
  int flips = 0, found = 0;
};

// Makes `flips` changes, one in each interval between checks, in a run on `mesh` that continues.
void find_flips(const std::string& mesh, int flips, uint64_t seed, Found& result) {
  constexpr int64_t kEvery = 4;
  const int64_t end = kEvery * (flips + 1);
  std::map<int64_t, uint64_t> right;  // bits by step
  {
    Training undisturbed(mesh, {.every = kEvery});
    for (int64_t s = 1; s <= end; ++s) {
      ASSERT_NO_FATAL_FAILURE(undisturbed.run_to(s));
      right[s] = undisturbed.bits();
    }
    ASSERT_TRUE(undisturbed.notes.empty()) << mesh << ": " << undisturbed.notes[0];
  }
  Training run(mesh, {.every = kEvery, .continues = true});
  std::mt19937_64 random(seed);
  for (int64_t begin = kEvery; begin < end; begin += kEvery) {
    ASSERT_NO_FATAL_FAILURE(run.run_to(begin));
    ASSERT_EQ(run.bits(), right[begin]) << mesh << ", step " << begin;
    // A cell and a rank whose shard has a copy.
    const dist::ShardedCell* shards = nullptr;
    std::vector<int> equal;
    std::string name;
    while (equal.size() < 2) {
      const auto& [n, cell] = run.cells()[random() % run.cells().size()];
      shards = shards_of(cell), name = n;
      const auto copies = shards->copies();
      equal = copies[random() % copies.size()];
      if (cell.shape().numel() < 2) equal = {};
    }
    const int rank = equal[random() % equal.size()];
    const uint64_t bit = random();
    const int64_t at = begin + 1 + static_cast<int64_t>(random() % kEvery);
    // Sums of gradients. Other received values enter a gradient before its sum, which leaves equal states.
    const auto sums = [](const std::string& axes, const CommRequest& r) {
      return r.kind == Collective::kAllReduce && axes.starts_with("dp") && r.out.nbytes() >= 512;
    };
    const int kind = static_cast<int>(random() % (mesh.starts_with("dp") ? 3 : 2));
    const bool mine = dist::is_local(rank);
    const auto change = [=] { flip(shards->shards[rank]->value, bit); };
    if (kind == 0 && mine) run.before[at] = change;
    if (kind == 1 && mine) run.after[at] = change;
    if (kind == 2 && mine)  // received bytes
      run.before[at] = [&run, rank, bit, sums] {
        RankContext& me = run.world().rank(rank);
        me.fault = [&me, bit, sums, left = static_cast<int64_t>(bit % 3)](const std::string& axes,
                                                                          const CommRequest& r) mutable {
          if (!sums(axes, r) || left-- != 0) return RankContext::Requests{{axes, r}};
          EXPECT_FALSE(me.communicator(axes).start(r)->wait(std::chrono::steady_clock::now() + me.timeout));
          if (r.out.contiguous())
            static_cast<uint8_t*>(r.out.data)[bit / 8 % static_cast<uint64_t>(r.out.nbytes())] ^= 1 << (bit % 8);
          return RankContext::Requests();
        };
      };
    run.notes.clear();
    ASSERT_NO_FATAL_FAILURE(run.run_to(begin + kEvery));
    if (mine) run.world().rank(rank).fault = {};
    const std::string what = str_cat(mesh, ", kind ", kind, ", '", name, "' of rank ", rank, " at step ", at);
    ++result.flips;
    if (run.notes.empty()) {
      // The change was lost: rounding may remove a bit of a moment.
      ASSERT_EQ(run.bits(), right[begin + kEvery]) << what << " was not found";
      continue;
    }
    ++result.found;
    ASSERT_EQ(run.notes.size(), 2u) << what << ": " << run.notes[0];
    testing::expect_has(run.notes[0], str_cat("differ; the run goes back to step ", begin));
    testing::expect_has(run.notes[1], str_cat(": rank ", rank, " on host "));
    testing::expect_has(run.notes[1], " has wrong bits in '");
    ASSERT_FALSE(::testing::Test::HasFailure()) << what << "\n" << run.notes[0] << "\n" << run.notes[1];
    ASSERT_EQ(run.bits(), right[begin + kEvery]) << what << ": the run continued from a wrong state";
  }
}

TEST(StateCheck, NamesTheRankAmongThreads) {
  for (const char* mesh : {"dp2", "dp3", "tp2", "dp2,tp2", "fsdp2,dp2"}) {
    Found found;
    find_flips(mesh, 50, 17, found);
    if (HasFatalFailure() || HasFailure()) return;
    EXPECT_EQ(found.flips, 50);
    EXPECT_GE(found.found, 40) << mesh;
  }
}

TEST(StateCheck, NamesTheRankAmongProcesses) {
  for (const std::string mesh : {"dp2", "dp3", "tp2"}) {
    const std::string out = str_cat(::testing::TempDir(), "/state_check_", mesh, ".");
    const int code =
        dist::launch({.processes = mesh[2] - '0', .command = {self, "ranks", mesh, out}, .name = "test"}).code;
    EXPECT_EQ(code, 0) << mesh;
    for (int r = 0; r < mesh[2] - '0'; ++r) EXPECT_EQ(io::read_file(str_cat(out, r)), "found") << mesh;
  }
}

TEST(StateCheck, StopsAndNamesTensorStepRankAndHost) {
  for (const char* mesh : {"dp2", "dp3"}) {
    int before_throw = 0;
    Training run(mesh, {.every = 4, .before_throw = [&] {
                          ++before_throw;
                          internal::fail(Code::kUnavailable, "the disk is full");  // a warning
                        }});
    run.after[6] = [&] { flip(shards_of(run.cells()[0].second)->shards[1]->value, 77); };
    const std::string text = testing::error_of([&] { run.run_to(20); });
    testing::expect_has(text, "--check_state: step 8: rank 1 on host ");
    testing::expect_has(text, str_cat(" has wrong bits in '", run.cells()[0].first, "'"));
    testing::expect_has(text, "; check this host, then continue with --resume");
    EXPECT_EQ(before_throw, 1);
    EXPECT_EQ(run.state.step, 8);
    EXPECT_EQ(run.notes, std::vector{str_cat("step 8: the copies of '", run.cells()[0].first,
                                             "' differ; the run goes back to step 4 to find the wrong rank")});
  }
}

TEST(StateCheck, NamesBothRanksIfTheStepsDoNotTell) {
  Training run("dp2", {.every = 1, .continues = true});
  const auto wrong = [&] { flip(shards_of(run.cells()[0].second)->shards[0]->value, 5); };
  run.after[3] = [&] {
    wrong();
    run.after[3] = wrong;  // again
  };
  const std::string text = testing::error_of([&] { run.run_to(5); });
  testing::expect_has(text, "step 3: rank 0 on host ");
  testing::expect_has(text, " or rank 1 on host ");
  testing::expect_has(text, ", and the copies differ again at step 3");
}

TEST(StateCheck, NamesTheRankThatMakesAStepNotFinite) {
  for (const int rank : {0, 1}) {
    Training run("dp2", {.every = 4, .continues = true});
    run.before[6] = [&] {  // after the check of step 4
      const Tensor& value = shards_of(run.cells()[0].second)->shards[rank]->value;
      for (int64_t i = 0; i < value.type().shape.numel(); ++i)
        static_cast<float*>(value.view_for_kernel().data)[i] = INFINITY;
    };
    run.run_to(8);
    ASSERT_EQ(run.notes.size(), 2u);
    testing::expect_has(run.notes[0], "step 5: the copies of '");
    testing::expect_has(run.notes[1], str_cat("step 5: rank ", rank, " on host "));
    EXPECT_EQ(run.notes[1].find(" or rank "), std::string::npos) << run.notes[1];
  }
}

TEST(StateCheck, MinusZeroAndNanAreBits) {
  for (const bool wrong : {false, true}) {
    manual_seed(3);
    const std::vector<float> values{-0.0f, std::nanf(""), 1};
    const Parameter w(Tensor::from_vector<float>(values, {3}), "w"), n(full({4}, 0.0), "n");
    const auto step = dist::compile(
        [&](const Tensor& x) {
          n.set(n.value() + 1.0);
          return sum(x) + sum(where(isfinite(w.value()), w.value(), zeros({3})));
        },
        {.mesh = dist::Mesh::parse("dp2")});
    step.prepare(ones({2}));
    dist::PlanReport plan = step.plan("cpu");
    StateCheck check({{"w", w}, {"n", n}}, {.every = 1}, &step.world(), &plan);
    TrainState state;
    const auto make_step = [&] {
      step(ones({2}));
      ++state.step;
      return check.passes(state, [](const std::string&) {});
    };
    EXPECT_TRUE(make_step());
    EXPECT_TRUE(make_step());
    if (!wrong) continue;
    flip(shards_of(w)->shards[1]->value, 31);  // 0.0
    EXPECT_FALSE(make_step());
    testing::expect_has(testing::error_of([&] { make_step(); }), "rank 1 on host ");
    EXPECT_TRUE(std::signbit(shards_of(w)->shards[1]->value.to_vector<float>()[0]));
  }
}

TEST(StateCheck, OneDeviceMakesTheStepTwice) {
  std::map<int64_t, uint64_t> right;
  for (const int wrong : {0, 1, 2}) {  // number of runs of step 6 with a wrong bit
    Training run("", {.every = 3, .continues = true});
    int left = wrong;
    const std::function<void()> change = [&] {
      flip(run.cells()[2].second.cell().value, 9 + static_cast<uint64_t>(left));
      if (--left > 0) run.after[6] = change;
    };
    if (wrong > 0) run.after[6] = change;
    run.run_to(10);
    EXPECT_EQ(run.state.step, 10);
    if (wrong == 0) right[10] = run.bits();
    EXPECT_EQ(run.bits(), right[10]);
    ASSERT_EQ(run.notes.size(), wrong > 0 ? 1u : 0u);
    if (wrong == 0) continue;
    testing::expect_has(run.notes[0], "step 6: rank 0 on host ");
    testing::expect_has(run.notes[0], " has wrong bits in '");
    testing::expect_has(run.notes[0], " after one of two runs of the step from one state; both are made again");
  }
  Training run("", {.every = 3});
  run.after[6] = [&] { flip(run.cells()[2].second.cell().value, 9); };
  testing::expect_has(testing::error_of([&] { run.run_to(10); }), "--check_state: step 6: rank 0 on host ");
}

// Families whose parameters change at a collective of a rank.
struct Change {
  int rank = -1;
  int64_t at = 0;
  nn::LanguageModel* model = nullptr;

  // Steps on equal meshes have one world, so another step gives access to the world of the trainer.
  void arm(const std::string& mesh) {
    using Fn = std::function<Tensor(const Tensor&)>;
    static auto* const step =
        new Compiled<Fn>(dist::compile(Fn([](const Tensor& x) { return x + 1.0; }), {.mesh = dist::Mesh::parse(mesh)}));
    step->prepare(ones({4}));
    dist::World& world = step->world();
    if (!dist::is_local(rank)) return;
    world.rank(rank).fault = [this](const std::string& axes, const CommRequest& request) {
      if (--at == 0) flip(shards_of(model->named_cells()[4].second)->shards[rank]->value, 1234567);
      return RankContext::Requests{{axes, request}};
    };
  }
};

nn::ModelFamily changed(nn::ModelFamily family, Change& change, const std::string& mesh) {
  family.make = [make = family.make, &change, mesh](const nn::ConfigMap& config) {
    auto model = make(config);
    change.model = model.get();
    if (change.rank >= 0) change.arm(mesh);
    return model;
  };
  return family;
}

TrainOptions options_of(const std::string& mesh, int64_t steps) {
  TrainOptions o = testing::short_run(mesh, steps, /*batch_size=*/4);
  o.check_state = 1;
  return o;
}

TEST(StateCheck, RaisesNoAlarm) {
  for (const char* mesh : {"", "dp2", "tp2", "fsdp2", "dp2,tp2", "pp2", "pp2,dp2"})
    for (const nn::ModelFamily* family : {&gpt::family(), &moe::family()}) {
      TrainOptions o = options_of(mesh, 150);
      o.config = family->name + "_tiny";
      ::testing::internal::CaptureStdout();
      const std::string error = testing::error_of([&] { EXPECT_EQ(train(*family, o), 0); });
      const std::string out = ::testing::internal::GetCapturedStdout();
      EXPECT_EQ(error, "") << mesh;
      EXPECT_EQ(out.find("differ"), out.npos) << out;
      const bool alone = std::string(mesh) == "pp2" || (std::string(mesh) == "fsdp2" && family->name == "gpt");
      EXPECT_EQ(out.find("--check_state: no tensor of the state has a copy") != out.npos, alone) << mesh << "\n" << out;
    }
}

TEST(StateCheck, AStepThatIsMadeAgainHasOneProfile) {
  TrainOptions o = options_of("", 5);
  o.config = "gpt_tiny";
  o.check_state = 4;
  o.profile_steps = "3-4";
  o.profile_out = ::testing::TempDir() + "/state_check_trace.json";
  ::testing::internal::CaptureStdout();
  const std::string error = testing::error_of([&] { EXPECT_EQ(train(gpt::family(), o), 0); });
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(error, "");
  const size_t at = out.find("profile of steps 3-4: ");
  EXPECT_NE(at, out.npos) << out;
  EXPECT_EQ(out.find("profile of steps", at + 1), out.npos) << out;
}

TEST(StateCheck, AStepThatIsMadeAgainHasOneLine) {
  TrainOptions o = options_of("", 3);
  o.config = "gpt_tiny";
  ::testing::internal::CaptureStdout();
  const std::string error = testing::error_of([&] { EXPECT_EQ(train(gpt::family(), o), 0); });
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(error, "");
  for (const char* line : {"step 1/3 ", "step 3/3 "}) {  // the lines that a run always prints
    const size_t at = out.find(line);
    EXPECT_NE(at, out.npos) << out;
    EXPECT_EQ(out.find(line, at + 1), out.npos) << out;
  }
}

TEST(StateCheck, RefusesErrorsOptionsWithoutSense) {
  TrainOptions o = options_of("dp2", 3);
  o.check_state_errors = "go";
  EXPECT_EQ(testing::error_of([&] { settle(gpt::family(), o); }),
            "--check_state_errors: got 'go'; need stop or continue");
  o = options_of("dp2", 3);
  o.check_state = 0;
  o.check_state_errors = "continue";
  EXPECT_EQ(testing::error_of([&] { settle(gpt::family(), o); }),
            "--check_state_errors: got continue; need --check_state or --check_compute above 0 as well");
}

struct Outcome {
  int code = 0;
  std::string out, err;
};

// Trains in a process of its own.
Outcome train_apart(const std::string& dir, int rank, int64_t at, const std::string& flags) {
  io::make_folders(dir);
  const std::string command =
      str_cat(self, " train ", rank, " ", at, " --config=gpt_tiny --data=synthetic --steps=12 --batch_size=4",
              " --seq_len=8 --seed=7 --checkpoint_every=4 --keep=0 --eval_every=3 --sample=0 --checkpoint_dir=", dir,
              "/steps --metrics=", dir, "/metrics.jsonl ", flags, " > ", dir, "/out 2> ", dir, "/err");
  const int status = std::system(command.c_str());
  return {WEXITSTATUS(status), io::read_file(dir + "/out"), io::read_file(dir + "/err")};
}

// The steps and losses of a metrics file.
std::string losses(const std::string& dir) {
  std::string all;
  const std::string text = io::read_file(dir + "/metrics.jsonl");
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    all += text.substr(at, text.find(",\"lr\"", at) - at).substr(0, text.find('\n', at) - at) + "\n";
  return all;
}

TEST(StateCheck, TrainersStopOrContinue) {
  for (const std::string ranks : {"threads", "processes"}) {
    const std::string dir = str_cat(::testing::TempDir(), "/state_check_train_", ranks),
                      mesh = "--mesh=dp2 --ranks=" + ranks;
    io::remove_all(dir);
    const Outcome plain = train_apart(dir + "/plain", -1, 0, mesh);
    ASSERT_EQ(plain.code, 0) << plain.err;
    const Outcome quiet = train_apart(dir + "/quiet", -1, 0, mesh + " --check_state=3");
    ASSERT_EQ(quiet.code, 0) << quiet.err;
    const Outcome stopped = train_apart(dir + "/stopped", 1, 40, mesh + " --check_state=3");
    EXPECT_EQ(stopped.code, 1) << stopped.out;
    testing::expect_has(stopped.err, ": rank 1 on host ");
    testing::expect_has(stopped.err, " has wrong bits in '");
    // Between two checks the ranks also send their waiting times, which differ when the steps are made again.
    const Outcome late =
        train_apart(dir + "/late", 1, 47, mesh + " --check_state=12 --checkpoint_every=12 --eval_every=0");
    EXPECT_EQ(late.code, 1) << late.out;
    testing::expect_has(late.err, ": rank 1 on host ");
    const Outcome on = train_apart(dir + "/on", 1, 40, mesh + " --check_state=3 --check_state_errors=continue");
    ASSERT_EQ(on.code, 0) << on.err;
    testing::expect_has(on.out, ": rank 1 on host ");
    testing::expect_has(on.out, "; the run continues from the right state");
    for (const char* other : {"/quiet", "/on"}) {
      EXPECT_EQ(losses(dir + other), losses(dir + "/plain")) << other;
      for (const char* file : {"/steps/step_4/model.safetensors", "/steps/step_8/optimizer.safetensors",
                               "/steps/step_12/model.safetensors", "/steps/step_12/optimizer.safetensors"})
        EXPECT_TRUE(io::read_file(dir + other + file) == io::read_file(dir + "/plain" + file)) << other << file;
    }
  }
}

}  // namespace

int ranks_main(const std::string& mesh, const std::string& out) {
  const int ranks = dist::Mesh::parse(mesh).size(), rank = std::atoi(std::getenv("RANK"));
  dist::FolderStore store(std::getenv("JOB_STORE"));
  dist::Processes::set_current(std::make_unique<dist::Processes>(store, ranks, rank, 1, std::chrono::seconds(60)));
  Found found;
  find_flips(mesh, 30, 5, found);
  const bool failed = ::testing::Test::HasFailure() || found.found < 20;
  io::write_file_atomic(str_cat(out, rank), failed ? str_cat(found.found, " of ", found.flips) : "found");
  dist::Processes::current()->barrier();
  dist::Processes::set_current({});
  return 0;
}

int child_main(int argc, char** argv) {
  std::string mesh;
  for (int i = 4; i < argc; ++i)
    if (std::string(argv[i]).starts_with("--mesh=")) mesh = argv[i] + 7;
  Change change{.rank = std::atoi(argv[2]), .at = std::atoll(argv[3])};
  argv[3] = argv[0];
  return train_main(argc - 3, argv + 3, changed(gpt::family(), change, mesh));
}

}  // namespace weft::train

int main(int argc, char** argv) {
  using namespace weft::train;
  self = argv[0];
  const std::string kind = argc > 1 ? argv[1] : "";
  if (kind == "train") return child_main(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  if (kind == "ranks") return ranks_main(argv[2], argv[3]);
  return RUN_ALL_TESTS();
}
