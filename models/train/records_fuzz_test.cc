// Damaged records: machine files, saved plans, records of steps and state.json. Each is refused, or gives values in
// range.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/cost/machine/machine_file.h"
#include "compiler/exec/record/record.h"
#include "distributed/plan/plan_text.h"
#include "framework/io/fields/text_fields.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/testing/fuzz.h"
#include "models/train/checkpoint.h"

namespace weft {
namespace {

using testing::FuzzRandom;

TEST(RecordsFuzz, MachineFiles) {
  Machine m{.bytes = 20e9, .flops = 50e9, .products = 100e9, .products16 = 200e9, .launch = 1e-6, .memory = 8e9};
  m.name = "mine";
  m.memory_rates = {{1 << 15, 400e9, 200e9, 300e9}, {1 << 25, 20e9, 10e9, 15e9}};
  m.product_shares = {{16, 0.25, 0.125}, {64, 0.5, 0.75}};
  testing::fuzz({.seeds = {machine_to_json(m),
                           R"({"machine": {"like": "h100-sxm", "theoretical": {"bytes": 4e12},
                               "links": {"node": 4, "inner_gather": [{"size": 2, "latency": 1, "bandwidth": 2},
                                                                     {"size": 3, "latency": 1, "bandwidth": 2}]}}})"},
                 .damage = [](std::string& s, FuzzRandom& r) { testing::damage_bytes(s, r); },
                 .read = [](const std::string& s) { check_machine(machine_from_json(s, "file")); },
                 .names = "file"});
}

constexpr const char* kPlan = R"(weft plan 1
mesh dp2,tp2
zero 2
cp allgather
cp_layout auto
wire bf16
sequence on
expert_room 2.5
hash 0123456789abcdef
split blocks.0.attn.qkv.weight tp 0
split blocks.0.attn.proj.weight tp 1
whole tok.weight tp
# a comment
end
)";

TEST(RecordsFuzz, SavedPlans) {
  testing::FuzzFile file(::testing::TempDir() + "/fuzz_damaged.plan");
  const std::vector<std::string_view> words = {
      "weft plan 1", "weft",    "mesh",      "one",        "dp2", "ep4(dp,tp)", "zero", "cp",
      "ring",        "ulysses", "cp_layout", "headtail",   "off", "on",         "hash", "ffffffffffffffffff",
      "split",       "whole",   "*",         "tok.weight", " ",   "-1",         "end"};
  const auto read = [&](const std::string& text) {
    file.set(text);
    const dist::SavedPlan saved = dist::load_plan(file.path());
    EXPECT_GE(saved.mesh.size(), 1);
    for (const dist::PlanRule& rule : saved.plan.rules)
      for (const auto& [dimension, placement] : rule.placements) EXPECT_TRUE(saved.mesh.find(dimension)) << dimension;
  };
  testing::fuzz({.seeds = {kPlan, "weft plan 1\nmesh one\nend\n",
                           "weft plan 1\r\nmesh fsdp4,cp2,ep2(fsdp)\r\ncp ring\r\nzero 3\r\nend\r\n"},
                 .damage = [&](std::string& s, FuzzRandom& r) { testing::damage_text(s, r, words); },
                 .read = read,
                 .names = file.path()});
}

StepRecord random_record(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  StepRecord r;
  r.device = "cpu";
  r.machine = machine_preset("cpu");
  if (below(2)) r.machine.memory_rates = {{1024, 3, 2, 1}, {2048, 3, 2, 1}};
  if (below(2)) r.passes = {{"cse", 0.5, 120, 97}, {"schedule", 0.25}};
  const int launches = 1 + below(5), buffers = 1 + below(5);
  for (int i = 0; i < launches; ++i) r.kernels.push_back("kernel { }");
  if (below(2)) r.missed.push_back({MissedRecord::kCopy, "a result", "", "it shows part of argument 0", 64});
  if (below(2))
    r.missed.push_back({MissedRecord::kSeparateKernels, "mul at model.cc:3", "dot", "both are products", 32});
  for (int i = 0; i < launches; ++i) {
    LaunchRecord l;
    l.name = below(2) ? "matmul" : "k0_add";
    l.scope = below(2) ? "blocks.3.attn" : "";
    if (below(2)) l.line = {"model.cc", static_cast<uint32_t>(1 + below(100))};
    l.phase = static_cast<Phase>(below(3));
    l.kind = static_cast<WorkClass>(below(5));
    l.bound = static_cast<Bound>(below(3));
    l.work = {.flops = 2.0 * below(1000),
              .bytes = 4.0 * below(1000),
              .products = 2.0 * below(1000),
              .product_dtype = below(2) ? kBFloat16 : kFloat32,
              .at_most = below(2) == 1};
    l.predicted_us = 0.1 * below(100);
    l.measured_us = 0.1 * below(100);
    l.results = {TensorType{kFloat32, Device::cpu(), {below(4), 3}}};
    l.fused = below(2) == 1;
    if (l.fused) l.ops = "add, mul", l.kernel = below(launches);
    l.copy = below(4) == 0;
    l.in_place = below(4) == 0;
    l.node = below(100);
    r.launches.push_back(std::move(l));
  }
  for (int i = 0; i < buffers; ++i) {
    const int32_t first = below(launches);
    r.buffers.push_back({.home = below(2) ? "arena" : "cell",
                         .owner = "up.weight",
                         .bytes = 64 * below(100),
                         .offset = 64 * below(100),
                         .first = first,
                         .last = first + below(launches - first)});
  }
  r.peak_bytes = 4096;
  r.peak_launch = below(launches);
  r.at_peak = {below(buffers)};
  return r;
}

TEST(RecordsFuzz, RecordsOfSteps) {
  std::mt19937 random(17);
  std::vector<std::string> seeds;
  for (int i = 0; i < 32; ++i) seeds.push_back(random_record(random).to_proto());
  const auto read = [](const std::string& bytes) {
    const StepRecord r = StepRecord::from_proto(bytes);
    const std::string again = r.to_proto();
    EXPECT_EQ(StepRecord::from_proto(again).to_proto(), again);
    EXPECT_EQ(StepRecord::from_proto(again).to_json(), r.to_json());
  };
  testing::fuzz({.seeds = std::move(seeds),
                 .damage = [](std::string& s, FuzzRandom& r) { testing::damage_bytes(s, r); },
                 .read = read,
                 .names = "record: "});
}

TEST(RecordsFuzz, StatesOfCheckpoints) {
  const std::string folder = ::testing::TempDir() + "/fuzz_state";
  io::make_folders(folder);
  const train::TrainState state{.step = 12,
                                .samples = 48,
                                .state_view = 2,
                                .seed = 18446744073709551615u,
                                .loss_scale = 65536,
                                .good_steps = 7,
                                .family = "gpt",
                                .model = {{"layers", "4"}, {"dim", "128"}, {"dropout", "0.1"}, {"tied", "false"}},
                                .run = {{"config", "gpt_tiny"}, {"lr", "0.001"}, {"dtype", "f16"}}};
  const std::string seed = io::read_file(train::save_checkpoint(folder, state, {}, {}, 0) + "/state.json");
  // Without a checksum the fields themselves are checked.
  io::Json plain = io::parse_json(seed, "seed");
  plain.erase("xxh3");
  testing::FuzzFile file(folder + "/state.json");
  const std::vector<std::string_view> words = {
      "{",     "}",       "[",       "]",    "\"",           ":",      ",",     "null", "true",         "\"w\"", "{}",
      "[[[[[", "\\u0000", "\\ud800", "step", "\"step\": 1,", "format", "model", "run",  "\"a\": \"b\"", "1.0"};
  const auto read = [&](const std::string& text) {
    file.set(text);
    const train::TrainState s = train::read_state(folder);
    EXPECT_GE(s.step, 0);
    EXPECT_GE(s.samples, 0);
    EXPECT_TRUE(std::isfinite(s.loss_scale));
  };
  testing::fuzz({.seeds = {seed, io::write_json(plain, 2)},
                 .damage = [&](std::string& s, FuzzRandom& r) { testing::damage_text(s, r, words); },
                 .read = read,
                 .names = file.path()});
  // A replica sends its state to another one.
  testing::fuzz({.seeds = {train::record_of(state)},
                 .damage = [&](std::string& s, FuzzRandom& r) { testing::damage_text(s, r, words); },
                 .read =
                     [](const std::string& text) {
                       const train::TrainState s = train::state_of(text);
                       EXPECT_EQ(train::record_of(train::state_of(train::record_of(s))), train::record_of(s));
                       EXPECT_GE(s.state_view, 0);
                     },
                 .names = "the state of a replica"});
}

TEST(RecordsFuzz, Origins) {
  const std::string folder = ::testing::TempDir() + "/fuzz_origin";
  io::make_folders(folder);
  testing::FuzzFile file(train::origin_path(folder));
  testing::fuzz(
      {.seeds = {R"({"source": "/models/a", "config": "0123456789abcdef"})"},
       .damage =
           [](std::string& s, FuzzRandom& r) {
             testing::damage_text(s, r, {"{", "}", "\"", "null", "source", "config", "\\u0000", "\\ud800", "[["});
           },
       .read =
           [&](const std::string& text) {
             file.set(text);
             train::read_origin(folder);
           },
       .names = file.path()});
}

struct Inner {
  double x = 0;
  std::vector<DType> types;
};
template <class V>
void fields(V& v, Inner& r) {
  v("x", r.x), v("types", r.types);
}
struct Outer {
  std::string name;
  bool on = false;
  int32_t n = 0;
  Shape shape;
  std::vector<Inner> all;
};
template <class V>
void fields(V& v, Outer& r) {
  v.line("outer");
  v("name", r.name), v("on", r.on), v("n", r.n), v("shape", r.shape), v("all", r.all);
}

// As plans compiled ahead of time are written.
TEST(RecordsFuzz, Texts) {
  Outer outer{"a\n", true, -7, {2, 3}, {{0.5, {kFloat32, kBool}}, {1e-9, {}}}};
  io::TextFieldWriter writer;
  fields(writer, outer);
  const std::vector<std::string_view> words = {"outer", "name", "\"x\"", "all", "9999999",
                                               "[",     "]",    "f32",   "nan", "-1"};
  const auto read = [](const std::string& text) {
    io::TextFieldReader reader(text);
    Outer r;
    fields(reader, r);
    reader.end();
    io::TextFieldWriter again;
    fields(again, r);
    EXPECT_FALSE(again.text().empty());
  };
  testing::fuzz({.seeds = {writer.text()},
                 .damage = [&](std::string& s, FuzzRandom& r) { testing::damage_text(s, r, words); },
                 .read = read});
}

}  // namespace
}  // namespace weft
