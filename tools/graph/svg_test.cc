// Rows of modules, and the picture of them.
#include "tools/graph/svg.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "framework/base/testing/error_of.h"
#include "tools/graph/module_rows.h"
#include "tools/step/model_step.h"

namespace weft::tools {
namespace {

using testing::expect_has;

StepChoice tiny(const char* model, const char* config) {
  return {.model = model, .config = config, .batch_size = 2, .seq_len = 16};
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// The element that is not closed, or closed twice; empty if there is none.
std::string unbalanced(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != svg.npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    if (end == svg.npos) return "the last one";
    if (svg[end - 1] == '/') continue;
    const bool closes = svg[at + 1] == '/';
    const size_t from = at + 1 + closes;
    const std::string name = svg.substr(from, svg.find_first_of(" >", from) - from);
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return name;
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back();
}

TEST(ModuleRows, EqualLayersAreOneAndOpsBetweenModulesHaveRows) {
  ModelStep step(tiny("gpt", "gpt_tiny"), Device::meta());
  step.prepare();
  const Graph g = step.compiled().graph("joint");
  const std::vector<Phase> phases = phases_of(g);
  const ModuleRows r = module_rows(g, phases, 40);
  std::vector<std::string> frames;
  for (const ModuleRows::Frame& f : r.frames) frames.push_back(f.label);
  EXPECT_EQ(frames, (std::vector<std::string>{"blocks.0 to 3: 4 equal layers", "blocks.0.attn", "blocks.0.ffn"}));
  const std::vector<std::string> first(r.labels.begin(), r.labels.begin() + 12);
  EXPECT_EQ(first, (std::vector<std::string>{"tok", "model.cc:31", "blocks.0.norm1", "blocks.0.attn.qkv", "model.cc:32",
                                             "blocks.0.attn.out", "model.cc:32", "blocks.0.norm2", "blocks.0.ffn.up",
                                             "model.cc:32", "blocks.0.ffn.down", "model.cc:32"}));
  EXPECT_EQ(std::count(r.labels.begin(), r.labels.end(), "opt"), 1);

  // A node of backward is in the row of its module; a hidden layer's node is in the row of the shown layer.
  int backward = 0;
  for (int32_t id = 0; id < g.size(); ++id) {
    const auto i = static_cast<size_t>(id);
    if (std::string_view(g.node(id).scope) != "blocks.2.attn.qkv" || r.row[i] < 0) continue;
    EXPECT_EQ(r.labels[static_cast<size_t>(r.row[i])], "blocks.0.attn.qkv");
    EXPECT_TRUE(r.repeated[i]);
    backward += phases[i] == Phase::kBackward;
  }
  EXPECT_EQ(backward, 2);  // two products
}

// Equal modules with ops of their parent between them are not layers.
TEST(ModuleRows, OpsOfTheParentBetweenNumberedModules) {
  const TensorType type{kFloat32, Device::cpu(), {4}};
  const auto layer = [](const char* name, const Tensor& t) {
    const NameScope scope(name);
    return exp(t);
  };
  const Ref<Graph> g = capture_graph(
      [&](std::span<const Tensor> in) { return std::vector{layer("1", relu(layer("0", in[0])))}; }, {&type, 1});
  const ModuleRows r = module_rows(*g, phases_of(*g), 40);
  EXPECT_EQ(std::count(r.labels.begin(), r.labels.end(), "0"), 1);
  EXPECT_EQ(std::count(r.labels.begin(), r.labels.end(), "1"), 1);
}

// Optimiser ops that do not read gradients, such as powers of the step count, are drawn with the other optimiser ops.
TEST(ModuleRows, TheOptimiserIsUpdateInAllStages) {
  ModelStep step(tiny("gpt", "gpt_tiny"), Device::meta());
  step.prepare();
  for (const char* stage : {"captured", "joint", "fused", "scheduled"}) {
    const Graph g = step.compiled().graph(stage);
    const std::vector<Phase> phases = phases_of(g);
    int update = 0;
    for (int32_t id = 0; id < g.size(); ++id) {
      const Phase phase = phases[static_cast<size_t>(id)];
      if (!g.node(id).inputs.empty() && std::string_view(g.node(id).scope) == "opt") {
        EXPECT_EQ(phase, Phase::kUpdate) << stage << ": node " << id << ", " << g.node(id).op->name;
      }
      update += phase == Phase::kUpdate;
    }
    EXPECT_GT(update, 20) << stage;
    EXPECT_EQ(phases[static_cast<size_t>(g.outputs[0].node)], Phase::kForward) << stage;
  }
}

TEST(ModuleRows, ModulesStayClosedWhereThereIsNoRoom) {
  ModelStep step(tiny("moe", "moe_tiny"), Device::meta());
  step.prepare();
  const Graph g = step.compiled().graph("joint");
  const std::vector<Phase> phases = phases_of(g);
  const ModuleRows all = module_rows(g, phases, 1000), few = module_rows(g, phases, 12);
  EXPECT_GT(all.labels.size(), 12u);
  EXPECT_LE(few.labels.size(), 12u);
  EXPECT_TRUE(few.frames.empty());
  for (size_t id = 0; id < all.row.size(); ++id) EXPECT_EQ(all.row[id] < 0, few.row[id] < 0) << id;
  // One layer is dense and one has experts: they are not equal.
  EXPECT_EQ(std::count(all.repeated.begin(), all.repeated.end(), true), 0);
}

TEST(Svg, HasTitleLegendLanesAndOneBoxForEachRowOfALane) {
  ModelStep step(tiny("gpt", "gpt_tiny"), Device::meta());
  step.prepare();
  const std::string svg = graph_svg("a < b & c", step.compiled().graph("joint"));
  EXPECT_EQ(unbalanced(svg), "");
  for (const char* part : {"a &lt; b &amp; c", ">forward<", ">backward<", ">update<", ">contraction<",
                           ">kept for backward<", ">blocks.0 to 3: 4 equal layers<", ">2 dot<"})
    expect_has(svg, part);
  EXPECT_EQ(count_of(svg, ">blocks.0.attn.qkv<"), 2u);  // forward and backward
  EXPECT_EQ(count_of(svg, ">opt<"), 1u);                // nodes that only the update reads are in its lane

  const StepRecord record = step.compiled().record();
  const std::string timed = graph_svg("t", step.compiled().graph("scheduled"), &record);
  EXPECT_EQ(unbalanced(timed), "");
  expect_has(timed, " us<");
}

TEST(Svg, AGraphWithoutBackwardHasOneLane) {
  const std::string svg = graph_svg("t", *forward_pass(tiny("llama", "llama_tiny")).graph);
  EXPECT_EQ(unbalanced(svg), "");
  EXPECT_EQ(count_of(svg, ">backward<"), 0u);
  EXPECT_EQ(count_of(svg, ">kept for backward<"), 0u);
}

TEST(Svg, TenThousandNodesOfAProgramWithoutModulesAreFewRows) {
  const TensorType type{kFloat32, Device::cpu(), {4}};
  const Ref<Graph> g = capture_graph(
      [](std::span<const Tensor> in) {
        Tensor x = in[0];
        for (int i = 0; i < 5000; ++i) x = tanh(x * x);
        return std::vector{x};
      },
      {&type, 1});
  const std::string svg = graph_svg("t", *g);
  EXPECT_LT(svg.size(), 20000u);
  expect_has(svg, "5000 mul, 5000 tanh");
}

}  // namespace
}  // namespace weft::tools
