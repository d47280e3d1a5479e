// A checkpoint has the bytes of one device, whichever mesh wrote it: before the first step, and after five steps with
// exact sums. Ranks are threads, processes, or processes over Gloo. A checkpoint of eight ranks continues on one rank
// and on four with the losses and the files of a run that was not interrupted; in f64, without exact sums, with losses
// that agree within 1e-9. The test takes one family and one kind of ranks for each mesh; --all takes all of them. It
// starts itself:
//     checkpoint_meshes_test FAMILY MESH SCHEDULE BATCH KIND SUMS FROM FOLDER
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <map>

#include "distributed/launch/compile.h"
#include "distributed/launch/launcher.h"
#include "distributed/launch/processes.h"
#include "framework/base/switches.h"
#include "framework/base/testing/number_flags.h"
#include "framework/io/file.h"
#include "models/hf/families.h"
#include "models/train/checkpoint.h"
#include "weft.h"

namespace weft::testing {
namespace {

bool all = false;
std::string self;

constexpr int64_t kSaved = 5, kEnd = 8;  // the steps of the second checkpoint and of the last loss
constexpr int64_t kParts = 2, kBatch = 8, kTime = 8, kVocab = 48;
constexpr const char *kOneDevice = "none", *kExact = "exact", *kDouble = "f64";

nn::ConfigMap small_config(const nn::ModelFamily& family) {
  nn::ConfigMap config = family.preset(family.default_preset);
  const nn::ConfigMap changes{{"vocab", str_cat(kVocab)},
                              {"context", "16"},
                              {"layers", "4"},
                              {"heads", "4"},
                              {"dim", "16"},
                              {"ffn", "32"},
                              {"kv_heads", "2"},
                              {"dropout", "0.1"},
                              {"experts", "4"},
                              {"bias_rate", "0.01"},
                              {"no_rope_every", "0"}};
  for (const auto& [field, text] : changes)
    if (const auto it = config.find(field); it != config.end()) it->second = text;
  return config;
}

// The loss of torch_checkpoint.py.
double loss_of(nn::LanguageModel& model) {
  std::vector<int32_t> tokens, targets;
  for (int64_t i = 0; i < model.context(); ++i) {
    tokens.push_back(static_cast<int32_t>((7 * i + i * i) % kVocab));
    targets.push_back(static_cast<int32_t>((7 * (i + 1) + (i + 1) * (i + 1)) % kVocab));
  }
  const NoGrad guard;
  model.eval();
  const Shape shape{1, model.context()};
  const nn::LossOut out =
      model.loss(Tensor::from_vector<int32_t>(tokens, shape), Tensor::from_vector<int32_t>(targets, shape));
  model.train();
  return out.ce.item<double>();
}

// Trains on a mesh to step kEnd, from the beginning, or from the checkpoint of kSaved in `from_folder`. Writes the
// losses to FOLDER/losses, and saves checkpoints of steps 0, kSaved and kEnd. `sums`: kExact, or kDouble for f64.
void train_on(const nn::ModelFamily& family, const std::string& mesh, const std::string& schedule, int64_t batch,
              const std::string& sums, const std::string& from_folder, const std::string& folder) {
  set_switch("WEFT_CXX", "none");  // interpreted: faster for so little data
  manual_seed(7);
  const auto model = family.make(small_config(family));
  if (sums == kDouble) model->to(kFloat64);
  optim::AdamW optimizer(optim::decay_groups(model->parameters(), 0.1), {.lr = 1e-2});
  const std::vector<Parameter> parameters = optimizer.parameters(true);
  const auto update = [&](const Tensor& tokens, const Tensor& targets, const Tensor& commits) {
    const nn::BatchShare share = nn::BatchShare::of(kParts, targets);
    auto [sum, grads] = accumulate(kParts, std::pair{tokens, targets}, [&](const Tensor& x, const Tensor& y) {
      nn::LossOut out = model->loss(x, y, share);
      Gradients g = grad(out.loss, parameters);
      for (Tensor* t : {&out.loss, &out.ce, &out.aux, &out.dropped}) *t = t->detach();
      return std::pair{std::move(out), std::move(g)};
    });
    NoGrad guard;
    commit_if(commits);
    optimizer.step(optim::clip_grad_norm(grads, 1.0).grads);
    model->update_balance(sum.expert_counts);
    return sum.loss;
  };
  CompileOptions options{.verify_numerics = sums == kExact};
  options.mesh = dist::Mesh::parse(mesh == kOneDevice ? "" : mesh, {});
  options.plan.pipeline = schedule;
  auto step = dist::compile(std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>(update), options);
  model->train();
  train::NamedCells state = optimizer.named_cells();
  state.emplace_back("rng.seed", default_generator().seed);
  state.emplace_back("rng.step", default_generator().step);
  std::ofstream losses;
  if (dist::is_first()) losses.open(folder + "/losses");
  losses << std::hexfloat;
  const auto save = [&](int64_t at) {
    train::save_checkpoint(folder + "/steps",
                           {.step = at, .samples = at * batch, .family = family.name, .model = model->config()},
                           model->named_cells(), state, 0);
  };
  int64_t first = 0;
  if (!from_folder.empty()) {
    const std::string saved = str_cat(from_folder, "/steps/step_", kSaved);
    const train::TrainState about = train::read_state(saved);
    train::load_cells(train::open_tensors(saved, "model", about), model->named_cells(), false, true);
    train::load_cells(train::open_tensors(saved, "optimizer", about), state, false, true);
    first = about.step;
  }
  for (int64_t i = first; i < kEnd; ++i) {
    std::vector<int32_t> ids(static_cast<size_t>(batch * (kTime + 1)));
    for (size_t k = 0; k < ids.size(); ++k)
      ids[k] = static_cast<int32_t>((k * k * 31 + static_cast<size_t>(i) * 17 + k * 7) % kVocab);
    const Tensor rows = Tensor::from_vector<int32_t>(ids, {batch, kTime + 1});
    const Tensor tokens = narrow(rows, 1, 0, kTime).contiguous(), targets = narrow(rows, 1, 1, kTime).contiguous();
    if (i == 0) {
      // A step that changes nothing gives each rank its shards.
      if (mesh != kOneDevice) step(tokens, targets, Tensor::from_vector<bool>({false}, {}));
      save(0);
    }
    if (i == kSaved && first == 0) {
      save(kSaved);
      if (mesh == kOneDevice) std::ofstream(folder + "/loss_of_saved") << std::setprecision(12) << loss_of(*model);
    }
    const Tensor loss = step(tokens, targets, Tensor::from_vector<bool>({true}, {}));
    losses << loss.item<double>() << "\n";
  }
  save(kEnd);
}

struct Row {
  const char* mesh;
  int ranks;
  bool experts = false;  // only of models with experts
  const char* schedule = "1f1b";
  int64_t batch = kBatch;  // rows of a step
};
constexpr Row kRows[] = {
    {"dp2", 2},       {"fsdp4", 4},         {"tp2", 2}, {"pp2", 2},           {"pp2", 2, false, "zb_v"},
    {"fsdp2,tp2", 4}, {"dp2,ep2", 4, true}, {"cp2", 2}, {"pp2,tp2,fsdp2", 8}, {"fsdp3", 3, false, "1f1b", 12}};
constexpr const char* kKinds[] = {"threads", "shared", "gloo"};

std::string root() {
  const char* const folder = std::getenv("TEST_TMPDIR");
  return str_cat(folder ? folder : "/tmp", "/checkpoint_meshes_test");
}

// Runs train_on() in its own processes, and returns its folder.
std::string run(const std::string& family, const Row& row, const std::string& kind, const std::string& from = "",
                const std::string& sums = kExact) {
  const std::string folder = str_cat(root(), "/", family, "/", row.mesh, "-", row.schedule, "-", row.batch, "-", kind,
                                     "-", sums, from.empty() ? "" : "-later");
  io::remove_all(folder);
  io::make_folders(folder);
  const auto job =
      dist::launch({.processes = kind == kKinds[0] ? 1 : row.ranks,
                    .command = {self, family, row.mesh, row.schedule, str_cat(row.batch), kind, sums, from, folder},
                    .name = "test"});
  EXPECT_EQ(job.code, 0) << folder;
  return folder;
}

std::vector<std::string> lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> all;
  for (std::string line; std::getline(file, line);) all.push_back(line);
  return all;
}

constexpr Row kOne{kOneDevice, 1};

void expect_equal_files(const std::string& got, const std::string& want, int64_t step) {
  const std::string of = str_cat("/steps/step_", step);
  EXPECT_EQ(io::list_folder(want + of),
            (std::vector<std::string>{"model.safetensors", "optimizer.safetensors", "state.json"}));
  EXPECT_EQ(io::list_folder(got + of), io::list_folder(want + of));
  for (const std::string& file : io::list_folder(want + of))
    EXPECT_TRUE(io::read_file(got + of + "/" + file) == io::read_file(want + of + "/" + file))
        << "step " << step << ": " << file << " differs";
}

TEST(CheckpointMeshes, HaveTheFilesOfOneDevice) {
  size_t turn = 0;
  for (const char* const family : {"gpt", "llama", "moe"}) {
    const bool experts = family_named(family).has_experts;
    std::vector<std::pair<const Row*, const char*>> cases;
    for (size_t i = 0; i < std::size(kRows); ++i)
      for (size_t k = 0; k < std::size(kKinds); ++k) {
        // Each row once.
        const bool mine = kRows[i].experts ? experts && k == 1 : i % 3 == turn && (i / 3 + turn) % 3 == k;
        if (all ? experts || !kRows[i].experts : mine) cases.emplace_back(&kRows[i], kKinds[k]);
      }
    ++turn;
    std::map<int64_t, std::string> of_one;  // key: rows of a step
    for (const auto& [row, kind] : cases) {
      std::string& want = of_one[row->batch];
      if (want.empty()) want = run(family, {.mesh = kOneDevice, .ranks = 1, .batch = row->batch}, kKinds[0]);
      EXPECT_EQ(lines(want + "/losses").size(), static_cast<size_t>(kEnd));
      SCOPED_TRACE(str_cat(family, " on ", row->mesh, " ", row->schedule, ", ", kind));
      const std::string got = run(family, *row, kind);
      EXPECT_EQ(lines(got + "/losses"), lines(want + "/losses"));
      for (const int64_t step : {int64_t{0}, kSaved}) expect_equal_files(got, want, step);
      std::printf("%s on %s %s, %s\n", family, row->mesh, row->schedule, kind);
    }
  }
}

TEST(CheckpointMeshes, ContinueOnAnotherMesh) {
  for (const char* const family : {"gpt", "llama", "moe"}) {
    if (!all && family != std::string("gpt")) continue;
    const std::string whole = run(family, kOne, kKinds[0]);
    const std::string saved = run(family, {"pp2,tp2,fsdp2", 8}, kKinds[0]);
    const std::vector<std::string> want = lines(whole + "/losses");
    for (const Row& row : {kOne, Row{"dp4", 4}}) {
      SCOPED_TRACE(str_cat(family, " on ", row.mesh));
      const std::string later = run(family, row, kKinds[0], saved);
      EXPECT_EQ(lines(later + "/losses"), std::vector<std::string>(want.begin() + kSaved, want.end()));
      expect_equal_files(later, whole, kEnd);
    }
  }
}

TEST(CheckpointMeshes, ContinueInDoublePrecisionWithoutExactSums) {
  for (const char* const family : {"gpt", "llama", "moe"}) {
    if (!all && family != std::string("llama")) continue;
    const std::vector<std::string> want = lines(run(family, kOne, kKinds[0], "", kDouble) + "/losses");
    ASSERT_EQ(want.size(), static_cast<size_t>(kEnd));
    const std::string saved = run(family, {"pp2,tp2,fsdp2", 8}, kKinds[0], "", kDouble);
    for (const Row& row : {kOne, Row{"dp4", 4}}) {
      const std::vector<std::string> got = lines(run(family, row, kKinds[0], saved, kDouble) + "/losses");
      ASSERT_EQ(got.size(), static_cast<size_t>(kEnd - kSaved));
      for (size_t i = 0; i < got.size(); ++i) {
        const double loss = std::stod(want[i + kSaved]);
        EXPECT_NEAR(std::stod(got[i]), loss, 1e-9 * loss) << family << " on " << row.mesh << ", step " << i + kSaved;
      }
    }
  }
}

// PyTorch 2.15 reads the checkpoint of kSaved and has the loss of Weft: torch_checkpoint.py printed these numbers.
TEST(CheckpointMeshes, PyTorchHasTheLoss) {
  for (const auto& [family, loss] : {std::pair("gpt", 3.975017541), {"llama", 3.678380477}, {"moe", 3.670044180}}) {
    const std::vector<std::string> got = lines(run(family, kOne, kKinds[0]) + "/loss_of_saved");
    ASSERT_EQ(got.size(), 1u);
    EXPECT_NEAR(std::stod(got[0]), loss, 1e-5 * loss) << family;
  }
}

int child(char** argv) {
  const nn::ModelFamily& family = family_named(argv[1]);
  const std::string mesh = argv[2], schedule = argv[3], kind = argv[5], sums = argv[6], from = argv[7],
                    folder = argv[8];
  const int64_t batch = std::atoll(argv[4]);
  if (kind == kKinds[0]) {
    train_on(family, mesh, schedule, batch, sums, from, folder);
    return 0;
  }
  dist::FolderStore store(std::getenv("JOB_STORE"));
  const int rank = std::atoi(std::getenv("RANK")), ranks = std::atoi(std::getenv("WORLD_SIZE"));
  dist::Processes::set_current(
      std::make_unique<dist::Processes>(store, ranks, rank, 1, std::chrono::seconds(60), kind));
  train_on(family, mesh, schedule, batch, sums, from, folder);
  dist::Processes::current()->barrier();
  dist::Processes::set_current({});
  return 0;
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  using namespace weft::testing;
  if (argc == 9 && *argv[1] != '-') try {
      return child(argv);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      return 1;
    }
  self = argv[0];
  if (!read_flags(argc, argv, {{"all", &all}})) return 2;
  return RUN_ALL_TESTS();
}
