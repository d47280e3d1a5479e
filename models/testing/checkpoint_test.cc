// Damaged checkpoints: whatever the damage, the error names the file, and nothing is allocated for the file
// first.
#include "models/train/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "framework/dispatch/state/stored_value.h"
#include "framework/io/file.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/hf/families.h"
#include "models/train/load.h"
#include "weft.h"

namespace weft::testing {
namespace {

using train::NamedCells;
using train::TrainState;

std::string fresh(const std::string& name) {
  const std::string path = ::testing::TempDir() + "/checkpoint_test_" + name;
  io::remove_all(path);
  return path;
}

void write(const std::string& path, const std::string& text) {  // without the syncs of an atomic write
  std::ofstream(path, std::ios::binary) << text;
}

nn::ConfigMap small(const std::string& family) {
  nn::ConfigMap config = family_named(family).preset(family_named(family).default_preset);
  const nn::ConfigMap changes{{"vocab", "7"}, {"layers", "2"}, {"heads", "2"},
                              {"dim", "8"},   {"ffn", "4"},    {"context", "6"}};
  for (const auto& [field, value] : changes) config[field] = value;
  if (config.count("kv_heads")) config["kv_heads"] = "2";
  return config;
}

// A checkpoint of a small model in `dir`; returns its folder.
std::string saved(const std::string& dir, const std::string& family) {
  const auto model = family_named(family).make(small(family));
  const TrainState state{
      .step = 3, .samples = 12, .seed = 7, .family = family, .model = model->config(), .run = {{"lr", "0.01"}}};
  return train::save_checkpoint(dir, state, model->named_cells(), {}, 0);
}

// state.json with a field of the model replaced and without its checksum, as an older program wrote it.
std::string with_field(const std::string& text, const std::string& field, const std::string& value) {
  std::string s = text.substr(0, text.find(",\n  \"xxh3\"")) + "\n}\n";
  const std::string key = str_cat("\"", field, "\": ");
  const size_t at = s.find(key) + key.size();
  EXPECT_NE(s.find(key), s.npos) << field;
  return s.replace(at, s.find_first_of(",\n", at) - at, value);
}

std::string error_of_load(const std::string& family, const std::string& folder) {
  return error_of([&] { train::load_model(family_named(family), {.checkpoint = folder}); });
}

TEST(Checkpoint, FieldsThatAreNotAllowedAreNamed) {
  const struct {
    const char *family, *field, *value, *error;
  } cases[] = {
      {"gpt", "heads", "\"0\"", "config: field 'heads' is '0'; need a whole number from 1 to 4194304"},
      {"gpt", "heads", "\"-2\"", "config: field 'heads' is '-2'; need a whole number from 1 to 4194304"},
      {"gpt", "heads", "\"3\"", "config: field 'dim' is '8'; need a multiple of heads, 3"},
      {"gpt", "context", "\"0\"", "config: field 'context' is '0'; need a whole number from 1 to 1073741824"},
      {"gpt", "vocab", "\"99999999999\"", "field 'vocab' is '99999999999'; need a whole number from 1 to 67108864"},
      {"gpt", "layers", "\"1000000000\"", "field 'layers' is '1000000000', but "},
      {"gpt", "layers", "\"3\"", "model.safetensors has 2 blocks"},
      {"gpt", "dropout", "\"1\"", "config: field 'dropout' is '1'; need a number from 0 to less than 1"},
      {"gpt", "norm_eps", "\"nan\"", "config: field 'norm_eps' is 'nan'; need a number above 0"},
      {"gpt", "norm_eps", "\"inf\"", "config: field 'norm_eps' is 'inf'; need a number above 0"},
      {"gpt", "norm_eps", "1", "\"model\": \"norm_eps\" is number; need a string"},
      {"gpt", "tied", "\"perhaps\"", "config: field 'tied' is 'perhaps'; need true or false"},
      {"llama", "rope_theta", "\"0\"", "config: field 'rope_theta' is '0'; need a number above 0"},
      {"llama", "kv_heads", "\"5\"", "config: field 'kv_heads' is '5'; need a divisor of heads, 2"},
      {"moe", "top_k", "\"60000\"", "top_k 60000 of 8 experts"},
      {"moe", "score", "\"hardmax\"", "config: field 'score' is 'hardmax'; need one of softmax,sigmoid"},
      {"gpt", "format", "2", "\"format\" is 2; this program reads 1"},
      {"gpt", "step", "-1", "\"step\" is -1; need a whole number, 0 or more"},
      {"gpt", "samples", "1.5", "\"samples\" is number; need a whole number"},
      {"gpt", "seed", "\"7x\"", "\"seed\" is \"7x\"; need a whole number, 0 or more"},
      {"gpt", "loss_scale", "0", "\"loss_scale\" is 0; need a number above 0"},
      {"gpt", "good_steps", "-7", "\"good_steps\" is -7; need a whole number, 0 or more"},
      {"gpt", "family", "\"llama\"", "\"family\" is 'llama'; need 'gpt'"},
  };
  for (const auto& c : cases) {
    const std::string folder = saved(fresh("field"), c.family), path = folder + "/state.json";
    write(path, with_field(io::read_file(path), c.field, c.value));
    const std::string error = error_of_load(c.family, folder);
    EXPECT_EQ(error.find(path + ": "), 0u) << error;
    EXPECT_NE(error.find(c.error), error.npos) << error;
  }
}

TEST(Checkpoint, TheStateIsWrittenByteForByte) {
  const std::string dir = fresh("bytes");
  const TrainState state{.step = 12,
                         .samples = 48,
                         .seed = 18446744073709551615u,
                         .loss_scale = 65536,
                         .good_steps = 7,
                         .family = "gpt",
                         .model = {{"dim", "128"}, {"dropout", "0.1"}},
                         .run = {{"lr", "0.001"}}};
  const std::string text = io::read_file(train::save_checkpoint(dir, state, {}, {}, 0) + "/state.json");
  EXPECT_EQ(text.substr(0, text.find("    \"model\": \"")), R"({
  "format": 1,
  "step": 12,
  "samples": 48,
  "seed": "18446744073709551615",
  "loss_scale": 65536.0,
  "good_steps": 7,
  "family": "gpt",
  "model": {
    "dim": "128",
    "dropout": "0.1"
  },
  "run": {
    "lr": "0.001"
  },
  "tensors": {
)");
  EXPECT_NE(text.find("\"\n  },\n  \"xxh3\": \""), text.npos) << text;
}

TEST(Checkpoint, AChecksumProtectsTheState) {
  const std::string folder = saved(fresh("checksum"), "gpt"), path = folder + "/state.json";
  const std::string text = io::read_file(path);
  EXPECT_EQ(error_of_load("gpt", folder), "");
  EXPECT_EQ(train::read_state(folder).seed, 7u);
  std::string edited = text;
  edited.replace(edited.find("\"samples\": 12"), 13, "\"samples\": 13");
  write(path, edited);
  EXPECT_EQ(error_of([&] { train::read_state(folder); }),
            path + ": the file is damaged or was edited: its checksum differs; remove \"xxh3\" to read it as it is");
  // An older file has no checksum.
  write(path, with_field(text, "samples", "13"));
  EXPECT_EQ(train::read_state(folder).samples, 13);
  // White space and the order of members do not matter.
  std::string flat;
  for (char c : text)
    if (c != '\n') flat += c;
  write(path, flat);
  EXPECT_EQ(train::read_state(folder).samples, 12);
}

TEST(Checkpoint, TheNameOfAFolderAgreesWithItsState) {
  const std::string folder = saved(fresh("renamed"), "gpt"), dir = io::folder_of(folder);
  std::filesystem::rename(folder, dir + "/step_999");
  const std::string error = dir + "/step_999 has the state of step 3; need the name step_3: rename the folder, or ";
  EXPECT_EQ(error_of([&] { train::read_state(train::latest_checkpoint(dir)); }), error + "move it away");
  EXPECT_EQ(error_of_load("gpt", dir), error + "move it away");
  train::remove_old_checkpoints(dir, /*newest=*/-1, 0);
  EXPECT_TRUE(io::exists(dir + "/step_999/state.json")) << "a folder that Weft did not name is removed";
  std::filesystem::rename(dir + "/step_999", dir + "/best");
  EXPECT_EQ(error_of_load("gpt", dir + "/best"), "");
}

TEST(Checkpoint, FilesOfTwoCheckpointsDoNotBelongTogether) {
  const std::string dir = fresh("mixed"), folder = saved(dir + "/a", "gpt"), other = saved(dir + "/b", "gpt");
  EXPECT_EQ(error_of_load("gpt", folder), "");
  write(folder + "/model.safetensors", io::read_file(other + "/model.safetensors"));
  EXPECT_EQ(error_of_load("gpt", folder), str_cat(folder, "/model.safetensors: the tensors do not belong to ", folder,
                                                  "/state.json; the file comes from another checkpoint"));
}

TEST(Checkpoint, EveryDamagedFileIsNamed) {
  for (const std::string& family : family_names()) {
    const std::string folder = saved(fresh("fuzz"), family);
    std::mt19937 random(5);
    for (const std::string name : {"state.json", "model.safetensors"}) {
      const std::string path = folder + "/" + name, good = io::read_file(path);
      // The text of the state, and the header of the tensors with the start of their data.
      const size_t end = name == "state.json" ? good.size() : std::min<size_t>(good.size(), 4000);
      int refused = 0;
      for (int i = 0; i < 100; ++i) {
        std::string bad = good;
        for (int n = static_cast<int>(random() % 3); n >= 0; --n) {
          const size_t at = random() % std::min(end, bad.size());
          switch (random() % 4) {
            case 0:
              bad[at] = static_cast<char>(random());
              break;
            case 1:
              bad[at] ^= static_cast<char>(1 << random() % 8);
              break;
            case 2:
              bad.erase(at, 1 + random() % 20);
              break;
            default:
              bad.insert(at, good.substr(random() % end, 1 + random() % 8));
          }
        }
        write(path, bad);
        const std::string error = error_of_load(family, folder);
        refused += !error.empty();
        EXPECT_TRUE(error.empty() || error.find(folder) != error.npos) << error;
      }
      EXPECT_GT(refused, 60);  // white space in the state does not count
      write(path, good);
    }
    EXPECT_EQ(error_of_load(family, folder), "");
  }
}

TEST(Checkpoint, APipeIsRefused) {
  const std::string folder = saved(fresh("pipe"), "gpt");
  for (const char* name : {"/model.safetensors", "/state.json"}) {
    io::remove_all(folder + name);
    ASSERT_EQ(::mkfifo((folder + name).c_str(), 0600), 0);
    EXPECT_EQ(error_of([&] { train::load_model(gpt::family(), {.checkpoint = folder}); }),
              str_cat("cannot read '", folder, name, "': it is a pipe; need a file"));
  }
}

TEST(Checkpoint, AMissingFileIsNamed) {
  for (const char* name : {"model", "optimizer"}) {
    const std::string folder = saved(fresh("missing"), "gpt"), path = str_cat(folder, "/", name, ".safetensors");
    io::remove_all(path);
    EXPECT_EQ(error_of([&] { train::open_tensors(folder, name, train::read_state(folder)); }),
              str_cat("cannot read '", path, "': No such file or directory"));
  }
}

TEST(Checkpoint, UnexpectedAndMissingTensorsAreNamed) {
  const std::string dir = fresh("tensors");
  const Parameter w(ones({2})), b(ones({3})), c(ones({4}));
  const std::string folder = train::save_checkpoint(dir, {.family = "gpt"}, {{"w", w}, {"b", b}}, {}, 0);
  const std::string path = folder + "/model.safetensors";
  const auto load = [&](const NamedCells& cells) {
    return error_of([&] { train::load_cells(train::open_tensors(folder, "model", {}), cells); });
  };
  EXPECT_EQ(load({{"w", w}}),
            path + ": tensor 'b' is unexpected; the checkpoint belongs to another model or configuration");
  EXPECT_EQ(load({{"w", w}, {"b", b}, {"c", c}}),
            path + ": no tensor 'c'; the checkpoint belongs to another model or configuration");
  EXPECT_EQ(load({{"w", w}, {"b", c}}), path + ": tensor 'b' is f32[3]; need f32[4]");
  EXPECT_EQ(load({{"w", w}, {"b", b}}), "");
}

// Cells of 1 MiB, not read yet.
NamedCells large_cells(int n, DType dtype) {
  NamedCells cells;
  for (int i = 0; i < n; ++i)
    cells.emplace_back(str_cat("c", i), Buffer({dtype, Device::cpu(), {1 << 20 >> 2}},
                                               [&] { return zeros({1 << 20 >> 2}, {.dtype = dtype}); }));
  return cells;
}

// No second copy of the values: the peak is the cells, also where their dtype is another.
TEST(Checkpoint, LoadingNeedsTheMemoryOfTheCells) {
  constexpr int kCells = 12;
  const std::string dir = fresh("memory");
  const NamedCells saved = large_cells(kCells, kFloat32);
  for (int i = 0; i < kCells; ++i) saved[i].second.set(full({1 << 18}, i + 0.5));
  const std::string folder = train::save_checkpoint(dir, {.family = "gpt"}, saved, {}, 0);
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const NamedCells cells = large_cells(kCells, dtype);
    Allocator& memory = Allocator::of(Device::cpu());
    memory.reset_peak();
    const int64_t before = memory.stats().live;
    train::load_cells(train::open_tensors(folder, "model", {}), cells, /*convert=*/true);
    EXPECT_LE(memory.stats().peak - before, kCells * (int64_t{1} << 18) * itemsize(dtype) + 4096);
    for (int i = 0; i < kCells; ++i)
      EXPECT_EQ(cells[i].second.value().to(kFloat32).to_vector<float>(), std::vector<float>(1 << 18, i + 0.5f));
  }
}

TEST(Checkpoint, EmptyTensorsScalarsAndBoolsComeBack) {
  const std::string dir = fresh("shapes");
  const Tensor values[] = {zeros({0, 3}), zeros({2, 0}), full({}, 7, {.dtype = kInt64}),
                           Tensor::from_vector<bool>({true, false, true}, {3}), full({2, 1, 3}, 0.5)};
  NamedCells saved;
  for (const Tensor& t : values) saved.emplace_back(str_cat("c", saved.size()), Buffer(t));
  const std::string folder = train::save_checkpoint(dir, {.family = "gpt"}, saved, {}, 0);
  for (const bool later : {false, true}) {
    NamedCells cells;
    for (const Tensor& t : values) cells.emplace_back(str_cat("c", cells.size()), Buffer(zeros_like(t)));
    train::load_cells(train::open_tensors(folder, "model", {}), cells, false, later);
    for (size_t i = 0; i < cells.size(); ++i)
      EXPECT_EQ(cells[i].second.value().to(kFloat64).to_vector<double>(), values[i].to(kFloat64).to_vector<double>());
  }
}

// A tensor whose checksum differs, wherever it is: no cell has changed.
TEST(Checkpoint, ADamagedTensorChangesNoCell) {
  const std::string dir = fresh("last");
  const Parameter w(ones({64})), b(ones({64}));
  const std::string folder = train::save_checkpoint(dir, {.family = "gpt"}, {{"w", w}, {"b", b}}, {}, 0);
  const std::string path = folder + "/model.safetensors", text = io::read_file(path);
  for (const auto& [from_end, name] : {std::pair(4, "b"), std::pair(300, "w")}) {
    std::string damaged = text;
    damaged[text.size() - from_end] ^= 1;
    write(path, damaged);
    const Parameter x(zeros({64})), y(zeros({64}));
    EXPECT_EQ(error_of([&] {
                train::load_cells(train::open_tensors(folder, "model", {}), {{"w", x}, {"b", y}});
              }),
              str_cat(path, ": tensor '", name, "', bytes 0 to 256: the checksum differs: the file is damaged"));
    for (const Parameter& p : {x, y}) EXPECT_EQ(p.value().to_vector<float>(), std::vector<float>(64));
    const auto later = [] { return Parameter({kFloat32, Device::cpu(), {64}}, [] { return zeros({64}); }); };
    const Parameter u = later(), v = later();
    EXPECT_FALSE(error_of([&] {
                   train::load_cells(train::open_tensors(folder, "model", {}), {{"w", u}, {"b", v}});
                 }).empty());
    EXPECT_TRUE(!u.materialised() && !v.materialised());
  }
}

// Values that are read later: a read verifies the blocks that it touches, and no others. A damaged cell keeps its place
// in the file, whatever reads it, until it is set.
TEST(Checkpoint, ALaterReadVerifiesItsBlocksAlone) {
  constexpr int64_t kRow = 1 << 20;  // elements of a block of 4 MiB
  const std::string dir = fresh("later");
  const Parameter w(arange(3 * kRow, {.dtype = kFloat32}).reshape({3, kRow})), b(ones({64}));
  const std::string folder = train::save_checkpoint(dir, {.family = "gpt"}, {{"w", w}, {"b", b}}, {}, 0);
  const std::string path = folder + "/model.safetensors";
  std::string text = io::read_file(path);
  text[text.size() - 256 - 4 * kRow - 1] ^= 1;  // the last byte of row 1
  write(path, text);
  const Parameter x(zeros({3, kRow})), y(zeros({64}));
  train::load_cells(train::open_tensors(folder, "model", {}), {{"w", x}, {"b", y}}, false, /*later=*/true);
  EXPECT_EQ(y.value().to_vector<float>(), std::vector<float>(64, 1));
  const std::string differs =
      path + ": tensor 'w', bytes 4194304 to 8388608: the checksum differs: the file is damaged";
  auto* const stored = dynamic_cast<StoredValue*>(x.cell().remote.get());
  ASSERT_TRUE(stored);
  for (const int64_t row : {0, 1, 2}) {
    std::vector<float> got(kRow);
    const TensorPart part{{{{row, row + 1}}, {{0, kRow}}}};
    EXPECT_EQ(error_of([&] { stored->read(x.cell(), part, got.data()); }), row == 1 ? differs : "");
    if (row == 1) continue;
    for (const int64_t i : {int64_t{0}, kRow - 1}) EXPECT_EQ(got[i], static_cast<float>(row * kRow + i));
  }
  for (int run = 0; run < 2; ++run) EXPECT_EQ(error_of([&] { x.value(); }), differs);
  x.set(ones({3, kRow}));
  EXPECT_EQ(x.value().sum().item<float>(), static_cast<float>(3 * kRow));
}

TEST(Checkpoint, OnlyCheckpointsAreReplacedAndRemoved) {
  const std::string dir = fresh("own");
  io::make_folders(dir + "/step_5");
  write(dir + "/step_5/state.json", "a user's own notes");
  io::make_folders(dir + "/step_1");
  const Parameter w(ones({2}));
  const auto lacks = [&](const std::string& step, const std::string& file) {
    return str_cat(dir, "/", step, " is not a checkpoint: it has no ", file, "; move it away, or name another folder");
  };
  const std::string want = lacks("step_5", "model.safetensors");
  EXPECT_EQ(error_of([&] { train::save_checkpoint(dir, {.step = 5}, {{"w", w}}, {}, 1); }), want);
  EXPECT_EQ(error_of([&] { train::check_only_checkpoints(dir); }), lacks("step_1", "state.json"));
  EXPECT_EQ(error_of([&] { train::find_checkpoint(dir); }), lacks("step_1", "state.json"));
  for (const int64_t step : {6, 7, 7}) train::save_checkpoint(dir, {.step = step}, {{"w", w}}, {}, 1);
  EXPECT_EQ(io::list_folder(dir), (std::vector<std::string>{"step_1", "step_5", "step_7"}));
  EXPECT_EQ(train::latest_checkpoint(dir), dir + "/step_7");
  EXPECT_EQ(io::read_file(dir + "/step_5/state.json"), "a user's own notes");
  std::filesystem::rename(dir + "/step_7", dir + "/step_8");
  expect_has(error_of([&] {
               train::save_checkpoint(dir, {.step = 8}, {{"w", w}}, {}, 1);
             }),
             dir + "/step_8 has the state of step 7; need the name step_7");
  EXPECT_EQ(io::list_folder(dir), (std::vector<std::string>{"step_1", "step_5", "step_8"}));
}

}  // namespace
}  // namespace weft::testing
