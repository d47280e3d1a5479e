#include "distributed/stages/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "compiler/cost/roofline.h"
#include "distributed/stages/microbatch.h"
#include "distributed/stages/testing/trainer_step.h"
#include "framework/base/testing/error_of.h"
#include "framework/ir/rewrite.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"

namespace weft::dist {
namespace {

using weft::testing::error_of;
using weft::testing::interpreted;
using weft::testing::joint_for_stages;
using weft::testing::MicrobatchValues;
using weft::testing::same_bits;
using weft::testing::trainer_step;
using weft::testing::TrainerStep;

// A step of two microbatches and its cut.
struct Case {
  Case(Ref<Graph> step, CutOptions options)
      : joint(std::move(step)), m(one_microbatch(*joint)), g(*m.graph), cut(cut_stages(g, m.arguments, options)) {}
  const StageOf& at(Value v) const { return cut.nodes[v.node]; }
  bool in_stage(int32_t id) const { return cut.nodes[id].region == StageOf::kStage; }
  bool is_sum(int32_t id) const { return g.node(id).op == &microbatch_sum_op; }

  Ref<Graph> joint;
  Microbatch m;
  const Graph& g;
  StageCut cut;
};

void expect_regions(const Case& c) {
  std::vector<bool> state(c.g.size()), sums(c.g.size()), varies(c.g.size());
  for (int32_t id = 0; id < c.g.size(); ++id) {
    SCOPED_TRACE(str_cat("node ", id, ", ", c.g.node(id).op->name, " in ", c.g.node(id).scope));
    const Node& n = c.g.node(id);
    const StageOf& own = c.cut.nodes[id];
    state[id] = n.op == &cell_op && !n.outputs[0].shape.empty();
    varies[id] = n.op == &input_op && n.attrs.i("index") >= static_cast<int64_t>(c.m.arguments);
    for (Value v : n.inputs) {
      state[id] = state[id] || state[v.node];
      sums[id] = sums[id] || sums[v.node] || c.is_sum(v.node);
      varies[id] = varies[id] || (varies[v.node] && !c.is_sum(v.node));
      if (own.region == StageOf::kFree) {
        EXPECT_EQ(c.at(v).region, StageOf::kFree);
      }
    }
    EXPECT_EQ(own.region == StageOf::kAfter, sums[id]);
    if (own.region == StageOf::kFree) {
      EXPECT_FALSE(state[id]);
    } else if (own.region == StageOf::kOutside) {
      EXPECT_FALSE(varies[id]);
      EXPECT_TRUE(state[id]);
    } else if (own.region == StageOf::kStage) {
      EXPECT_TRUE(c.is_sum(id) || (varies[id] && state[id]));
    }
    EXPECT_EQ(own.region == StageOf::kStage, own.stage >= 0 && own.stage < c.cut.stages);
    EXPECT_EQ(own.backward, own.region == StageOf::kStage && own.backward);
    EXPECT_LE(own.weight, own.backward);
    if (n.backward && own.region == StageOf::kStage) {
      EXPECT_TRUE(own.backward);
    }
  }
}

// Stages are contiguous and have work; values flow forward in F and back in B.
void expect_directions(const Case& c) {
  std::vector<double> forward(static_cast<size_t>(c.cut.stages));
  std::set<std::pair<Value, int>> received;  // forward values, and the stages whose forward nodes read them
  int stage = 0;
  for (int32_t id = 0; id < c.g.size(); ++id) {
    const StageOf& own = c.cut.nodes[id];
    if (!c.in_stage(id) || own.backward || c.is_sum(id)) continue;
    EXPECT_TRUE(own.stage == stage || own.stage == stage + 1) << "node " << id;
    stage = own.stage;
    forward[static_cast<size_t>(stage)] += op_cost(c.g, c.g.node(id)).bytes;
    for (Value v : c.g.node(id).inputs) {
      if (!c.in_stage(v.node)) continue;
      EXPECT_FALSE(c.at(v).backward);
      EXPECT_LE(c.at(v).stage, own.stage);
      received.insert({v, own.stage});
    }
  }
  EXPECT_EQ(stage, c.cut.stages - 1);
  for (double bytes : forward) EXPECT_GT(bytes, 0);
  for (int32_t id = 0; id < c.g.size(); ++id) {
    const StageOf& own = c.cut.nodes[id];
    if (!own.backward) continue;
    for (Value v : c.g.node(id).inputs) {
      if (!c.in_stage(v.node)) continue;
      if (c.at(v).backward) {
        EXPECT_GE(c.at(v).stage, own.stage) << "node " << id;
      } else {
        EXPECT_TRUE(c.at(v).stage == own.stage || received.contains({v, own.stage})) << "node " << id;
      }
    }
  }
}

// W consists of all nodes from which no value for another stage follows.
void expect_weights(const Case& c) {
  const std::vector<std::vector<int32_t>> users = weft::users(c.g);
  for (int32_t id = 0; id < c.g.size(); ++id) {
    const StageOf& own = c.cut.nodes[id];
    if (!own.backward) continue;
    bool sent = false;
    std::vector<int32_t> open{id};
    std::set<int32_t> seen;
    while (!open.empty()) {
      const int32_t at = open.back();
      open.pop_back();
      for (int32_t user : users[at]) {
        if (!c.in_stage(user)) continue;
        sent |= c.cut.nodes[user].stage != own.stage;
        if (seen.insert(user).second) open.push_back(user);
      }
    }
    EXPECT_EQ(own.weight, !sent) << "node " << id;
  }
}

void expect_balance(const Case& c) {
  const std::vector<double>& work = c.cut.seconds;
  ASSERT_EQ(work.size(), static_cast<size_t>(c.cut.stages));
  const double total = std::accumulate(work.begin(), work.end(), 0.0);
  double all = 0;
  for (int32_t id = 0; id < c.g.size(); ++id)
    if (c.in_stage(id) && !c.g.node(id).op->view)
      all += roofline_seconds(machine_preset("cpu"), op_cost(c.g, c.g.node(id)));
  EXPECT_NEAR(total, all, 1e-9 * all);
  // If consecutive pieces are cut where a stage first exceeds the mean, no stage is larger than the mean plus one
  // piece.
  EXPECT_LE(*std::max_element(work.begin(), work.end()), kUnevenStages * (total / c.cut.stages + c.cut.largest_piece));
}

// Runs each stage alone, with the values that crossings() lists: all F, then I from the last stage to the first, then
// W.
std::vector<Tensor> run_stages(const Case& c, const std::vector<Tensor>& args) {
  const MicrobatchValues step(*c.joint, c.m, args);
  const std::vector<Crossing> links = crossings(c.g, c.cut);
  std::map<int32_t, Tensor> sums;
  for (int64_t k = 0; k < c.m.count; ++k) {
    std::vector<internal::BodyValues> stages(static_cast<size_t>(c.cut.stages), step.leaves(k));
    const auto run = [&](int stage, const auto& which) {
      internal::BodyValues& values = stages[static_cast<size_t>(stage)];
      for (int32_t id = 0; id < c.g.size(); ++id) {
        const Node& n = c.g.node(id);
        if (is_leaf(n) || !which(c.cut.nodes[id])) continue;
        if (!c.is_sum(id)) {
          values.run(id);
          continue;
        }
        const Tensor part = values(n.inputs[0]);
        sums[id] = k == 0 ? part : sums[id] + part;
      }
    };
    const auto in = [](const StageOf& s, int stage) { return s.region == StageOf::kStage && s.stage == stage; };
    for (int s = 0; s < c.cut.stages; ++s) {
      run(s, [](const StageOf& n) { return n.region == StageOf::kFree || n.region == StageOf::kOutside; });
      run(s, [&](const StageOf& n) { return in(n, s) && !n.backward; });
      for (const Crossing& x : links)
        if (x.link.from == s)
          for (Value v : x.forward) stages[static_cast<size_t>(x.link.to)].set(v, stages[static_cast<size_t>(s)](v));
    }
    for (int s = c.cut.stages - 1; s >= 0; --s) {
      run(s, [&](const StageOf& n) { return in(n, s) && n.backward && !n.weight; });
      for (const Crossing& x : links)
        if (x.link.to == s)
          for (Value v : x.backward) stages[static_cast<size_t>(x.link.from)].set(v, stages[static_cast<size_t>(s)](v));
    }
    for (int s = 0; s < c.cut.stages; ++s) run(s, [&](const StageOf& n) { return in(n, s) && n.weight; });
  }
  internal::BodyValues values = step.leaves(0);
  for (const auto& [id, sum] : sums) values.set({id, 0}, sum);
  for (int32_t id = 0; id < c.g.size(); ++id)
    if (!is_leaf(c.g.node(id)) && !c.in_stage(id) && values.knows_operands(c.g.node(id))) values.run(id);
  return step.results(values);
}

void expect_bits(const Case& c, const std::vector<Tensor>& args) {
  const NoGrad guard;
  const std::vector<Tensor> got = run_stages(c, args), want = interpreted(*c.joint, args);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << "result " << i;
}

void expect_cut(const TrainerStep& s, int stages) {
  SCOPED_TRACE(str_cat(stages, " stages"));
  const Case c(s.joint, {.stages = stages});
  expect_regions(c);
  expect_directions(c);
  expect_weights(c);
  expect_balance(c);
}

// ---- reference models ----

TEST(Cut, Gpt) {
  const TrainerStep s = trainer_step(gpt::family(), "gpt_tiny", 2, {{"dropout", "0.1"}});
  for (int stages : {1, 2, 3, 4, 8}) expect_cut(s, stages);
  expect_bits(Case(s.joint, {.stages = 3}), s.args);
}

TEST(Cut, Llama) {
  const TrainerStep s = trainer_step(llama::family(), "llama_tiny", 2);
  for (int stages : {1, 2, 3, 4, 8}) expect_cut(s, stages);
  expect_bits(Case(s.joint, {.stages = 4}), s.args);
}

TEST(Cut, Experts) {
  const TrainerStep s = trainer_step(moe::family(), "moe_tiny", 2);
  for (int stages : {1, 2, 3, 4}) expect_cut(s, stages);
  expect_bits(Case(s.joint, {.stages = 2}), s.args);
}

TEST(Cut, OnlyTheResidualStreamCrosses) {
  const TrainerStep s = trainer_step(gpt::family(), "gpt_tiny", 2);
  const Case c(s.joint, {.stages = 4});
  const std::vector<Crossing> all = crossings(c.g, c.cut);
  ASSERT_EQ(all.size(), 3u);
  for (int k = 0; k < 3; ++k) {
    const Crossing& x = all[static_cast<size_t>(k)];
    EXPECT_EQ(x.link, (pipeline::StageLink{k, k + 1}));
    for (const std::vector<Value>* values : {&x.forward, &x.backward}) {
      ASSERT_EQ(values->size(), 1u);
      EXPECT_EQ(c.g.type((*values)[0]).shape, (Shape{2, 64, 128}));
    }
    EXPECT_EQ(x.forward_bytes, 2 * 64 * 128 * 4);
    EXPECT_EQ(x.backward_bytes, 2 * 64 * 128 * 4);
    EXPECT_EQ(c.cut.first[static_cast<size_t>(k) + 1].rfind(str_cat("blocks.", k + 1, ".norm1: "), 0), 0u)
        << c.cut.first[static_cast<size_t>(k) + 1];
  }
  // Block 1 has a product for the weights and a product for the input for each of its four matrices.
  int input = 0, weight = 0;
  for (int32_t id = 0; id < c.g.size(); ++id)
    if (c.cut.nodes[id].stage == 1 && c.cut.nodes[id].backward && std::string_view(c.g.node(id).op->name) == "dot")
      ++(c.cut.nodes[id].weight ? weight : input);
  EXPECT_EQ(input, 4);
  EXPECT_EQ(weight, 4);
}

// Inside a block, a value that prepares a gradient, such as 2 x of the norm, is computed where it is read.
TEST(Cut, GradientsCrossOnceForEachValue) {
  const TrainerStep s = trainer_step(gpt::family(), "gpt_tiny", 2);
  const Case c(s.joint, {.stages = 3});
  for (const Crossing& x : crossings(c.g, c.cut)) {
    EXPECT_EQ(x.forward.size(), 2u);  // the residual stream, and the hidden layer
    EXPECT_EQ(x.forward_bytes, x.backward_bytes);
  }
}

TEST(Cut, TiedWeightsHaveTheirSumOnTheFirstStage) {
  const TrainerStep s = trainer_step(llama::family(), "llama_tiny", 2, {{"tied", "true"}});
  const Case c(s.joint, {.stages = 4});
  expect_cut(s, 4);
  const std::vector<Crossing> all = crossings(c.g, c.cut);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1].link, (pipeline::StageLink{0, 3}));
  EXPECT_TRUE(all[1].forward.empty());
  // One device adds both parts of the gradient for each microbatch.
  ASSERT_EQ(all[1].backward.size(), 1u);
  EXPECT_EQ(c.g.type(all[1].backward[0]).shape, (Shape{96, 128}));
  expect_bits(c, s.args);
}

TEST(Cut, RotaryTablesAreFree) {
  const TrainerStep s = trainer_step(llama::family(), "llama_tiny", 2);
  const Case c(s.joint, {.stages = 2});
  int tables = 0;
  for (int32_t id = 0; id < c.g.size(); ++id) {
    const std::string_view op = c.g.node(id).op->name;
    if (op != "cos" && op != "sin" && op != "iota") continue;
    ++tables;
    EXPECT_EQ(c.cut.nodes[id].region, StageOf::kFree);
  }
  EXPECT_GE(tables, 3);
}

// ---- small steps ----

struct Small {
  std::vector<Parameter> w;
  std::vector<Tensor> args;
  Small(int layers) {
    manual_seed(3);
    for (int i = 0; i < layers; ++i) w.emplace_back(randn({8, 8}) * 0.3, str_cat("w", i));
    args = {randn({4, 6, 8})};
  }
  /// Gradients and loss of `loss`(rows), summed over two microbatches.
  Ref<Graph> joint(const std::function<Tensor(const Tensor&)>& loss) const {
    return joint_for_stages(
        [&](std::span<const Tensor> in) {
          auto [sum, grads] = accumulate(2, in[0], [&](const Tensor& x) {
            const Tensor l = loss(x);
            std::vector<Tensor> g = grad(l, std::vector<Parameter>(w));
            return std::pair{l.detach(), std::move(g)};
          });
          std::vector<Tensor> out{sum};
          out.insert(out.end(), grads.begin(), grads.end());
          return out;
        },
        args);
  }
  Tensor layer(int i, const Tensor& x) const {
    NameScope scope(str_cat("layers.", i));
    return tanh(matmul(x, w[static_cast<size_t>(i)].value()));
  }
};

TEST(Cut, MasksAndRandomNumbersAreFree) {
  const Small s(4);
  const Ref<Graph> joint = s.joint([&](const Tensor& x) {
    const Tensor documents = cumsum((select(x, 2, 0) > 0.5).to(kInt64), 1);
    const Tensor mask = eq(documents.unsqueeze(1), documents.unsqueeze(2)).to(kFloat32);
    Tensor h = x;
    for (int i = 0; i < 4; ++i) h = h + dropout(matmul(mask, s.layer(i, h)), 0.25);
    return sum(square(h));
  });
  const Case c(joint, {.stages = 4});
  expect_regions(c);
  expect_directions(c);
  expect_weights(c);
  std::set<std::string_view> found;
  for (int32_t id = 0; id < c.g.size(); ++id) {
    const std::string_view op = c.g.node(id).op->name;
    if (op != "cumsum" && op != "eq" && !c.g.node(id).op->is(kRandom)) continue;
    found.insert(op);
    EXPECT_EQ(c.cut.nodes[id].region, StageOf::kFree) << op;
  }
  EXPECT_EQ(found.size(), 3u);
  for (const Crossing& x : crossings(c.g, c.cut))
    for (Value v : x.forward) EXPECT_EQ(c.g.type(v).shape, (Shape{2, 6, 8}));
  expect_bits(c, s.args);
}

TEST(Cut, SkipConnectionsGoFromStageToStage) {
  const Small s(6);
  const Ref<Graph> joint = s.joint([&](const Tensor& x) {
    const Tensor early = s.layer(0, x);
    Tensor h = early;
    for (int i = 1; i < 6; ++i) h = s.layer(i, h);
    return sum(square(h + early));
  });
  const Case c(joint, {.stages = 3});
  expect_regions(c);
  expect_directions(c);
  expect_weights(c);
  std::vector<pipeline::StageLink> links;
  for (const Crossing& x : crossings(c.g, c.cut)) links.push_back(x.link);
  EXPECT_EQ(links, (std::vector<pipeline::StageLink>{{0, 1}, {0, 2}, {1, 2}}));
  expect_bits(c, s.args);
}

TEST(Cut, GradientsThatReadTheLossOfALaterStage) {
  const Small s(3);
  const Ref<Graph> joint = joint_for_stages(
      [&](std::span<const Tensor> in) {
        return accumulate(2, in[0], [&](const Tensor& x) {
          Tensor h = x;
          for (int i = 0; i < 3; ++i) h = s.layer(i, h);
          const Tensor loss = sum(square(h)), penalty = sum(square(s.w[0].value())) * 0.01;
          std::vector<Tensor> g = grad(loss + penalty, std::vector<Parameter>(s.w));
          for (Tensor& t : g) t = (t * loss).detach();
          return g;
        });
      },
      s.args);
  const Case c(joint, {.stages = 3});
  expect_regions(c);
  expect_weights(c);
  expect_bits(c, s.args);
}

TEST(Cut, AGradientWhoseOperandsNoStageHas) {
  const Small s(3);
  const Ref<Graph> joint = joint_for_stages(
      [&](std::span<const Tensor> in) {
        return accumulate(2, in[0], [&](const Tensor& x) {
          const Tensor a = s.layer(0, x), positive = sum(a) > 0.0;
          const Tensor b = s.layer(1, a), other = sum(b);
          const Tensor y = s.layer(2, b);
          const Tensor g = grad(sum(square(y)), std::vector<Parameter>{s.w[2]})[0];
          return std::vector{where(positive, g, other).detach()};
        });
      },
      s.args);
  const Case c(joint, {.stages = 3, .begins = {"layers.1", "layers.2"}});
  expect_regions(c);
  expect_weights(c);
  // The gradient and the other operand go to the last stage of the forward operands.
  for (int32_t id = 0; id < c.g.size(); ++id)
    if (std::string_view(c.g.node(id).op->name) == "where") {
      EXPECT_EQ(c.cut.nodes[id].stage, 1);
    }
  expect_bits(c, s.args);
}

TEST(Cut, ProductsOfArgumentsAreNotRepeated) {
  const Small s(2);
  const Tensor filter = randn({8, 8});
  const Ref<Graph> joint = s.joint([&](const Tensor& x) { return sum(s.layer(1, s.layer(0, matmul(x, filter)))); });
  const Case c(joint, {.stages = 2});
  int filtered = 0;
  for (int32_t id = 0; id < c.g.size(); ++id) {
    const Node& n = c.g.node(id);
    if (std::string_view(n.op->name) != "dot" || c.at(n.inputs[1]).region != StageOf::kFree) continue;
    ++filtered;
    EXPECT_EQ(c.cut.nodes[id].region, StageOf::kStage);
    EXPECT_EQ(c.cut.nodes[id].stage, 0);
  }
  EXPECT_EQ(filtered, 1);
  expect_bits(c, s.args);
}

TEST(Cut, SumsOfValuesThatNoMicrobatchChanges) {
  const Small s(2);
  const Ref<Graph> joint = joint_for_stages(
      [&](std::span<const Tensor> in) {
        return accumulate(2, in[0], [&](const Tensor& x) {
          const Tensor y = sum(s.layer(1, s.layer(0, x)));
          return std::vector<Tensor>{y.detach(), s.w[0].value().detach() * 2.0, x * 2.0, ones({3})};
        });
      },
      s.args);
  const Case c(joint, {.stages = 2});
  std::vector<int> stages;
  for (int32_t id = 0; id < c.g.size(); ++id)
    if (c.is_sum(id)) stages.push_back(c.cut.nodes[id].stage);
  // A value that follows from a parameter is added where the parameter is read.
  EXPECT_EQ(stages, (std::vector<int>{1, 0, 1, 1}));
  expect_bits(c, s.args);
}

// ---- marks ----

TEST(Cut, StagesBeginWithTheMarkedModules) {
  const TrainerStep s = trainer_step(gpt::family(), "gpt_tiny", 2);
  const Case c(s.joint, {.stages = 3, .begins = {"blocks.1", "blocks.3.ffn"}});
  expect_regions(c);
  expect_directions(c);
  expect_weights(c);
  for (int32_t id = 0; id < c.g.size(); ++id) {
    if (!c.in_stage(id) || c.cut.nodes[id].backward) continue;
    const std::string_view scope = c.g.node(id).scope;
    for (const auto& [module, stage] : std::map<std::string_view, int>{
             {"blocks.0", 0}, {"blocks.1", 1}, {"blocks.2", 1}, {"blocks.3.attn", 1}, {"blocks.3.ffn.down", 2}})
      EXPECT_TRUE(scope.substr(0, module.size()) != module || c.cut.nodes[id].stage == stage) << scope;
  }
  EXPECT_EQ(c.cut.first[1].rfind("blocks.1.norm1: ", 0), 0u) << c.cut.first[1];
  EXPECT_EQ(c.cut.first[2].rfind("blocks.3.ffn", 0), 0u) << c.cut.first[2];
  expect_bits(c, s.args);
}

TEST(Cut, WrongMarks) {
  const TrainerStep s = trainer_step(gpt::family(), "gpt_tiny", 2);
  const Microbatch m = one_microbatch(*s.joint);
  const auto error = [&](int stages, std::vector<std::string> begins) {
    return error_of([&] { cut_stages(*m.graph, m.arguments, {.stages = stages, .begins = std::move(begins)}); });
  };
  EXPECT_EQ(error(4, {"blocks.1", "blocks.2"}),
            "stages: got 2 modules for 4 stages; need one for each stage but the first");
  EXPECT_EQ(error(2, {"blocks.4"}),
            "stages: 'blocks.4' is no module that computes a value of each microbatch; need one, as 'blocks.3'");
  EXPECT_EQ(error(2, {"lock"}),
            "stages: 'lock' is no module that computes a value of each microbatch; need one, as 'blocks.3'");
  EXPECT_EQ(error(2, {"opt"}),
            "stages: 'opt' is no module that computes a value of each microbatch; need one, as 'blocks.3'");
  EXPECT_EQ(error(3, {"blocks.2", "blocks.1"}),
            "stages: 'blocks.1' does not begin after 'blocks.2'; need modules in the order of the step");
  EXPECT_EQ(error(3, {"blocks.2", "blocks.2"}),
            "stages: 'blocks.2' does not begin after 'blocks.2'; need modules in the order of the step");
  EXPECT_EQ(
      error(2, {"tok"}),
      "stages: stage 0, which ends before tok: index_select at models/gpt/model.cc:31, has no work; need work in each "
      "stage");
}

TEST(Cut, MarksBehindAllWork) {
  const Small s(1);
  const Ref<Graph> joint = joint_for_stages(
      [&](std::span<const Tensor> in) {
        return std::vector{accumulate(2, in[0], [&](const Tensor& x) {
          const Tensor y = exp(s.layer(0, x).detach());
          NameScope scope("shape");
          return y.reshape({-1});
        })};
      },
      s.args);
  EXPECT_EQ(error_of([&] { Case(joint, {.stages = 2, .begins = {"shape"}}); }),
            "stages: stage 1, the last one, has no work; need work in each stage");
}

// The first stage of a chain of equal blocks holds more microbatches: under a limit it gets fewer blocks.
TEST(Cut, KeepsMemory) {
  const TrainerStep s = trainer_step(gpt::family(), "gpt_tiny", 2, {{"layers", "8"}});
  const Microbatch m = one_microbatch(*s.joint);
  CutOptions o{.stages = 2, .alive = {8, 1}};
  const auto cut = [&](int64_t memory) {
    o.memory = memory;
    return cut_stages(*m.graph, m.arguments, o);
  };
  const StageCut even = cut(0);
  int64_t least = 1, most = int64_t{1} << 40;  // bounds of the least limit that a cut meets
  while (least + 1 < most) {
    const int64_t middle = (least + most) / 2;
    (cut(middle).fits ? most : least) = middle;
  }
  const StageCut tight = cut(most), none = cut(least);
  EXPECT_TRUE(even.fits);
  EXPECT_FALSE(none.fits);
  EXPECT_EQ(none.first, even.first);
  EXPECT_LT(tight.seconds[0], 0.8 * even.seconds[0]);
  EXPECT_NEAR(tight.seconds[0] + tight.seconds[1], even.seconds[0] + even.seconds[1], 1e-9);
  // The bytes that the stages keep, counted independently.
  const auto kept = [&](const StageCut& c, int stage) {
    std::set<Value> values;
    for (int32_t id = 0; id < m.graph->size(); ++id)
      if (c.nodes[id].backward)
        for (Value v : m.graph->node(id).inputs)
          if (c.nodes[v.node].region == StageOf::kStage && !c.nodes[v.node].backward &&
              c.nodes[v.node].stage == stage && !m.graph->node(v).op->view)
            values.insert(v);
    double bytes = 0;
    for (Value v : values) bytes += static_cast<double>(m.graph->type(v).nbytes());
    return bytes * o.alive[static_cast<size_t>(stage)];
  };
  EXPECT_LE(kept(tight, 0), static_cast<double>(most));
  EXPECT_LT(kept(tight, 0), 0.8 * kept(even, 0));
}

TEST(Cut, TooManyStages) {
  const Small s(1);
  const Ref<Graph> joint = joint_for_stages(
      [&](std::span<const Tensor> in) {
        return std::vector{accumulate(2, in[0], [&](const Tensor& x) { return s.layer(0, x).detach(); })};
      },
      s.args);
  EXPECT_EQ(Case(joint, {.stages = 2}).cut.seconds.size(), 2u);
  EXPECT_EQ(error_of([&] { Case(joint, {.stages = 3}); }),
            "pp: the step has 2 pieces of work for a microbatch; need one or more for each of 3 stages");
  EXPECT_EQ(error_of([&] { Case(joint, {.stages = 0}); }), "pp: got 0 stages; need 1 or more");
  const Ref<Graph> none = joint_for_stages(
      [&](std::span<const Tensor> in) {
        return std::vector{accumulate(2, in[0], [&](const Tensor& x) { return x * 2.0; })};
      },
      s.args);
  EXPECT_EQ(error_of([&] { Case(none, {.stages = 2}); }),
            "pp: the step has 0 pieces of work for a microbatch; need one or more for each of 2 stages");
}

}  // namespace
}  // namespace weft::dist
