// Trainers that start from weights of transformers or of a checkpoint, on one device and on meshes.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>

#include "distributed/launch/compile.h"
#include "distributed/launch/step.h"
#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/gpt/config.h"
#include "models/hf/families.h"
#include "models/llama/config.h"
#include "models/text/formats/files.h"
#include "models/text/settings.h"
#include "models/text/tokenizer.h"
#include "models/train/checkpoint.h"
#include "models/train/load.h"
#include "models/train/trainer.h"
#include "models/weights/load.h"
#include "weft.h"

namespace weft::testing {
namespace {

using train::TrainOptions;

std::string fixture(const std::string& name) { return "models/testing/hf/fixtures/" + name; }

std::string fresh(const std::string& name) {
  const std::string dir = ::testing::TempDir() + "/hf_train_" + name;
  io::remove_all(dir);
  return dir;
}

TrainOptions options_of(const std::string& dir, int64_t steps) {
  TrainOptions o;
  o.data = "synthetic";
  o.steps = steps;
  o.batch_size = 4;
  o.seq_len = 16;
  o.lr = 1e-3;
  o.checkpoint_every = "2";
  o.keep = 0;
  o.checkpoint_dir = dir;
  o.metrics = dir + ".jsonl";
  o.ranks = "threads";
  std::remove(o.metrics.c_str());
  return o;
}

std::vector<double> losses_of(const TrainOptions& o) {
  std::vector<double> losses;
  const std::string text = io::read_file(o.metrics);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const io::Json line = io::parse_json(text.substr(at, end - at), o.metrics);
    if (line.contains("loss")) losses.push_back(line["loss"].get<double>());
    at = end + 1;
  }
  return losses;
}

struct Case {
  const char* model;
  const char* program;
  bool ep = false;
};
const Case kCases[] = {{"gpt2", "gpt"}, {"llama_bf16", "llama"}, {"llama_yarn_old", "llama"}, {"mixtral", "moe", true}};

// The weights that a run starts from, as cells of a model on one device.
nn::StateDict loaded(const Case& c, std::unique_ptr<nn::LanguageModel>& model) {
  const weights::HfModel hf = weights::open_hf(fixture(c.model));
  const nn::ModelFamily& family = family_named(c.program);
  model = family.make(family.with_fields(family.preset(family.default_preset), hf.config.config));
  weights::load_weights(hf, model->named_cells(), nullptr, weights::Values::kCopied);
  return model->state_dict();
}

// Losses and cells of four steps on meshes equal one device's up to rounding.
TEST(HfTrain, MeshesEqualOneDevice) {
  for (const Case& c : kCases) {
    TrainOptions one = options_of(fresh("one"), 4);
    one.hf = fixture(c.model);
    ASSERT_EQ(train::train(family_named(c.program), one), 0);
    const std::vector<double> want = losses_of(one);
    ASSERT_EQ(want.size(), 4u);
    std::vector<std::string> meshes{"dp2", "tp2", "fsdp2", "dp2,tp2"};
    if (c.ep) meshes.push_back("dp2,ep2");
    for (const std::string& mesh : meshes) {
      SCOPED_TRACE(str_cat(c.model, " on ", mesh));
      TrainOptions o = options_of(fresh("mesh"), 4);
      o.hf = one.hf;
      o.mesh = mesh;
      ASSERT_EQ(train::train(family_named(c.program), o), 0);
      const std::vector<double> got = losses_of(o);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << i;
      const nn::StateDict a = load(one.checkpoint_dir + "/step_4/model.safetensors"),
                          b = load(o.checkpoint_dir + "/step_4/model.safetensors");
      ASSERT_EQ(a.size(), b.size());
      // AdamW turns the rounding of a small gradient into a step of the size of the learning rate.
      for (const auto& [name, x] : a)
        EXPECT_LE(amax(abs(x - b.at(name))).item<double>(), 1e-3 * amax(abs(x)).item<double>() + 2e-3) << name;
    }
  }
}

// A file, and the number of elements that were read from it.
class Counted final : public weights::WeightSource {
 public:
  explicit Counted(std::shared_ptr<const WeightSource> file) : file_(std::move(file)) {}
  const std::string& path() const override { return file_->path(); }
  std::vector<std::string> names() const override { return file_->names(); }
  std::optional<weights::WeightInfo> find(std::string_view name) const override { return file_->find(name); }
  void check(std::string_view name) const override { file_->check(name); }
  const void* read(std::string_view name, int64_t begin, int64_t end, std::vector<std::byte>& room) const override {
    elements += end - begin;
    WEFT_CHECK_AS(kDataLoss, name != damaged, path(), ": tensor '", name, "': the checksum differs");
    return file_->read(name, begin, end, room);
  }
  void release(std::string_view name) const override { file_->release(name); }
  mutable std::atomic<int64_t> elements{0};
  std::string damaged;  // a read of this tensor fails

 private:
  const std::shared_ptr<const WeightSource> file_;
};

// A step on a mesh reads each shard of each cell once, and no other element. The shards are parts of the whole values.
TEST(HfTrain, ARankReadsItsShareOfTheBytes) {
  for (const Case& c : kCases)
    for (const char* const mesh : {"dp2", "tp2", "fsdp2", "fsdp2,tp2"}) {
      SCOPED_TRACE(str_cat(c.model, " on ", mesh));
      std::unique_ptr<nn::LanguageModel> model;
      const nn::StateDict want = loaded(c, model);
      weights::HfModel hf = weights::open_hf(fixture(c.model));
      const auto counted = std::make_shared<Counted>(hf.source);
      hf.source = counted;
      weights::load_weights(hf, model->named_cells(), nullptr, weights::Values::kLater);
      EXPECT_EQ(counted->elements, 0);
      auto step = dist::compile(
          [&](Tensor x, Tensor y) {
            NoGrad guard;
            return model->loss(x, y).ce;
          },
          {.mesh = dist::Mesh::parse(mesh)});
      const Tensor tokens = zeros({4, 8}, {.dtype = kInt32});
      step(tokens, tokens);
      int64_t need = 0;
      for (const auto& [name, cell] : model->named_cells()) {
        if (!dynamic_cast<const dist::ShardedCell*>(cell.cell().remote.get())) continue;  // the step does not read it
        need += cell.numel();  // ranks with equal shards read them once
        EXPECT_EQ(cell.value().to_vector<float>(), want.at(name).to_vector<float>()) << name;
      }
      EXPECT_GT(need, 0);
      EXPECT_EQ(counted->elements, need);
    }
}

// A damaged tensor: each step fails with the error of its file, and no cell is torn, before and after.
TEST(HfTrain, ADamagedShardTearsNoCell) {
  for (const char* const mesh : {"dp2", "fsdp2"}) {
    const Case& c = kCases[0];
    std::unique_ptr<nn::LanguageModel> model;
    const nn::StateDict want = loaded(c, model);
    weights::HfModel hf = weights::open_hf(fixture(c.model));
    const auto file = std::make_shared<Counted>(hf.source);
    file->damaged = file->names().back();
    hf.source = file;
    weights::load_weights(hf, model->named_cells(), nullptr, weights::Values::kLater);
    auto step = dist::compile(
        [&](Tensor x, Tensor y) {
          NoGrad guard;
          return model->loss(x, y).ce;
        },
        {.mesh = dist::Mesh::parse(mesh)});
    const Tensor tokens = zeros({4, 8}, {.dtype = kInt32});
    const std::string differs = str_cat(file->path(), ": tensor '", file->damaged, "': the checksum differs");
    for (int run = 0; run < 2; ++run) {
      const std::string error = error_of([&] { step(tokens, tokens); });
      EXPECT_TRUE(error.starts_with(differs)) << error;
      EXPECT_EQ(error.find("torn"), error.npos) << error;
    }
    file->damaged = "";
    step(tokens, tokens);
    for (const auto& [name, cell] : model->named_cells())
      EXPECT_EQ(cell.value().to_vector<float>(), want.at(name).to_vector<float>()) << name;
  }
}

// A checkpoint names the origin of its weights, so a run resumes without --hf. Another --hf causes a note, and the
// checkpoint wins.
TEST(HfTrain, CheckpointsKnowTheirOrigin) {
  const nn::ModelFamily& llama = llama::family();
  TrainOptions o = options_of(fresh("origin"), 2);
  o.hf = fixture("llama3");
  ASSERT_EQ(train::train(llama, o), 0);
  const train::Origin origin = train::read_origin(o.checkpoint_dir + "/step_2");
  EXPECT_TRUE(origin.source.starts_with("/") && origin.source.ends_with("/" + fixture("llama3"))) << origin.source;
  EXPECT_EQ(origin.config, train::config_hash(fixture("llama3") + "/config.json"));
  EXPECT_EQ(train::read_state(o.checkpoint_dir + "/step_2").run.count("config"), 0u);

  for (const char* const other : {"", "llama3", "qwen2"}) {
    TrainOptions more = options_of(o.checkpoint_dir, 4);
    more.resume = true;
    if (*other) more.hf = fixture(other);
    more.steps = 4;
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(train::train(llama, more), 0);
    const std::string text = ::testing::internal::GetCapturedStdout();
    EXPECT_NE(text.find("resumed from"), text.npos) << text;
    EXPECT_NE(text.find("llama llama3: "), text.npos) << text;
    EXPECT_EQ(text.find("note: --hf is ") != text.npos, std::string(other) == "qwen2") << text;
    EXPECT_EQ(train::read_origin(o.checkpoint_dir + "/step_4"), origin);
    io::remove_all(o.checkpoint_dir + "/step_4");
  }

  TrainOptions next = options_of(fresh("next"), 2);
  next.init_from = o.checkpoint_dir;
  next.set["norm_eps"] = "0.001";
  ASSERT_EQ(train::train(llama, next), 0);
  EXPECT_TRUE(train::read_origin(next.checkpoint_dir + "/step_2").source.ends_with("/hf_train_origin/step_2"));
  const train::TrainState state = train::read_state(next.checkpoint_dir + "/step_2");
  EXPECT_EQ(state.model.at("norm_eps"), "0.001");
  EXPECT_EQ(state.model.at("dim"), "16");
}

// A checkpoint contains the tokenizer of its text, so it is read where the tokenizer's file is gone.
TEST(HfTrain, CheckpointsContainTheirTokenizer) {
  const std::string folder = fresh("tokenizer_file"), text = folder + "/text.txt";
  io::make_folders(folder);
  io::write_file_atomic(folder + "/tokenizer.json", io::read_file(fixture("tokenizers/gpt2.json")));
  io::write_file_atomic(folder + "/chat_template.jinja", "{{ bos_token }}");
  std::string content;
  for (int i = 0; i < 2000; ++i) content += str_cat("line ", i, " of a text that has numbers.\n");
  io::write_file_atomic(text, content);
  const auto tokenizer = text::FileTokenizer::open(folder);
  TrainOptions o = options_of(fresh("tokenizer"), 2);
  o.data = text;
  o.tokenizer = folder;
  o.set = {{"vocab", str_cat(tokenizer->vocab_size())}, {"dim", "16"}, {"layers", "1"}, {"heads", "2"}};
  o.eval_every = 0;
  o.sample_tokens = 4;
  ASSERT_EQ(train::train(gpt::family(), o), 0);
  // The same tokenizer in a GGUF file that does not name its pattern.
  std::vector<std::string> notes;
  TrainOptions gguf = o;
  gguf.checkpoint_dir = fresh("tokenizer_gguf");
  gguf.metrics = gguf.checkpoint_dir + ".jsonl";
  gguf.tokenizer = folder + "/tokenizer.gguf";
  io::GgufMetadata metadata = text::metadata_for_gguf(folder, tokenizer->vocab_size(), {}, &notes);
  for (auto& [key, value] : metadata)
    if (key == "tokenizer.ggml.pre") value = std::string("default");
  io::write_file_atomic(gguf.tokenizer, io::gguf_of(metadata));
  const std::string unnamed = error_of([&] { train::train(gpt::family(), gguf); });
  EXPECT_NE(unnamed.find("tokenizer.ggml.pre is 'default'"), unnamed.npos) << unnamed;
  gguf.pre = "gpt-2";
  const std::string gguf_name = text::FileTokenizer::open(gguf.tokenizer, gguf.pre)->name();
  ASSERT_EQ(train::train(gpt::family(), gguf), 0);
  std::remove((folder + "/tokenizer.json").c_str());
  std::remove(gguf.tokenizer.c_str());
  for (const bool is_gguf : {false, true}) {
    const std::string& dir = (is_gguf ? gguf : o).checkpoint_dir;
    const train::LoadedModel m = train::load_model(gpt::family(), {.checkpoint = dir}, true);
    EXPECT_EQ(m.tokenizer->name(), is_gguf ? gguf_name : tokenizer->name());
    EXPECT_EQ(m.folder, dir + (is_gguf ? "/step_2/tokenizer/tokenizer.gguf" : "/step_2/tokenizer"));
    EXPECT_EQ(m.end_ids, std::vector<int32_t>{tokenizer->end_of_text()});
    EXPECT_EQ(m.tokenizer->encode("a text"), tokenizer->encode("a text"));
    EXPECT_EQ(text::read_settings(m.folder).chat_template, "{{ bos_token }}");
  }
  TrainOptions again = options_of(gguf.checkpoint_dir, 4);
  again.data = text;
  again.resume = true;
  again.pre = "qwen2";
  EXPECT_NE(error_of([&] { train::train(gpt::family(), again); }).find("--pre: got qwen2; need the pattern of the"),
            std::string::npos);
  again.pre = gguf.pre;
  ASSERT_EQ(train::train(gpt::family(), again), 0);
  EXPECT_EQ(io::read_file(again.checkpoint_dir + "/step_4/tokenizer/tokenizer.gguf"),
            io::read_file(again.checkpoint_dir + "/step_2/tokenizer/tokenizer.gguf"));

  TrainOptions more = options_of(o.checkpoint_dir, 4);
  more.data = text;
  more.resume = true;
  ASSERT_EQ(train::train(gpt::family(), more), 0);
  EXPECT_TRUE(io::exists(o.checkpoint_dir + "/step_4/tokenizer/tokenizer.json"));
  more.tokenizer = fixture("tokenizers/qwen.json");
  const std::string error = error_of([&] { train::train(gpt::family(), more); });
  EXPECT_NE(error.find("--tokenizer: got "), error.npos) << error;
  EXPECT_NE(error.find("need the tokenizer of the checkpoint"), error.npos) << error;
}

// The first loss of a run is the loss of the weights that it starts from.
TEST(HfTrain, StartsFromTheWeights) {
  const Case c{"qwen2", "llama"};
  std::unique_ptr<nn::LanguageModel> model;
  loaded(c, model);
  TrainOptions o = options_of(fresh("start"), 2);
  o.hf = fixture(c.model);
  ASSERT_EQ(train::train(llama::family(), o), 0);
  TrainOptions again = options_of(fresh("again"), 2);
  const std::string folder = train::save_checkpoint(
      fresh("saved"), {.step = 1, .family = "llama", .model = model->config()}, model->named_cells(), {}, 0);
  again.init_from = folder;
  ASSERT_EQ(train::train(llama::family(), again), 0);
  EXPECT_EQ(losses_of(again), losses_of(o));
  TrainOptions plain = options_of(fresh("plain"), 2);
  for (const auto& [field, value] : model->config()) plain.set[field] = value;
  ASSERT_EQ(train::train(llama::family(), plain), 0);
  EXPECT_GT(std::abs(losses_of(plain)[0] - losses_of(o)[0]), 1e-3);
}

TEST(HfTrain, OneSentenceForWhatDoesNotFit) {
  const std::string gpt2 = fixture("gpt2"), llama3 = fixture("llama3");
  const struct {
    const char* program;
    std::function<void(TrainOptions&)> change;
    std::string error;
  } cases[] = {
      {"llama", [&](auto& o) { o.hf = gpt2; },
       "config.json: field 'model_type' is 'gpt2'; use the programs of //models/gpt"},
      {"llama", [&](auto& o) { o.hf = llama3, o.config = "llama_tiny"; },
       "--hf: got models/testing/hf/fixtures/llama3; need no --config"},
      {"llama", [&](auto& o) { o.init_from = llama3, o.config = "llama_tiny"; },
       "--init_from: got models/testing/hf/fixtures/llama3; need no --config"},
      {"llama", [&](auto& o) { o.hf = o.init_from = llama3; }, "need either --init_from or --hf"},
      {"llama", [&](auto& o) { o.context = 8; }, "--context: got 8; need --hf"},
      {"llama", [&](auto& o) { o.init_from = llama3; }, "llama3: no checkpoint here"},
      {"llama", [&](auto& o) { o.hf = "no/such"; }, "no/such: neither a folder nor a model in "},
      {"llama", [&](auto& o) { o.hf = llama3 + "/expected.safetensors"; }, "save_pretrained(folder) of transformers"},
      {"llama", [&](auto& o) { o.hf = llama3, o.set["ffn"] = "32"; },
       "--set: got ffn=32; need fields that keep the shapes of --hf, whose weights have blocks.0.ffn.gate.weight of "
       "shape"},
      {"llama", [&](auto& o) { o.hf = llama3, o.set["layers"] = "3"; },
       "need fields that keep the shapes of --hf, whose weights have no blocks.2."},
      {"llama", [&](auto& o) { o.hf = llama3, o.set["layers"] = "1"; },
       "need fields that keep the shapes of --hf, whose weights have blocks.1.attn.out.weight as well"},
      {"llama", [&](auto& o) { o.hf = llama3, o.set["heads"] = "2", o.set["kv_heads"] = "1", o.set["head_dim"] = "8"; },
       "whose weights are of 2 heads of 4"},
      {"llama", [&](auto& o) { o.hf = llama3, o.set["tied"] = "true"; }, "whose weights have "},
      {"llama", [&](auto& o) { o.hf = llama3, o.set["dropout"] = "x"; }, "--set: "},
      {"llama", [&](auto& o) { o.hf = llama3, o.data = ""; },
       "--hf: 'llama3' has a vocabulary of 40 tokens; text needs 256"},
      {"llama", [&](auto& o) { o.hf = llama3, o.context = 8; },
       "--seq_len: got 16; need at most the model's context of 8"},
  };
  for (const auto& c : cases) {
    TrainOptions o = options_of(fresh("bad"), 2);
    c.change(o);
    const std::string error = error_of([&] { train::train(family_named(c.program), o); });
    EXPECT_NE(error.find(c.error), error.npos) << c.error << "\n" << error;
    EXPECT_EQ(error.find('\n'), error.npos) << error;
    EXPECT_FALSE(io::exists(o.checkpoint_dir)) << error;
  }
}

}  // namespace
}  // namespace weft::testing
