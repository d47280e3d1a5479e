// The public names are a contract: code in the documentation compiles against weft.h and distributed.h alone, and
// behaves as documented.
#include <gtest/gtest.h>

#include <map>

#include "distributed/distributed.h"
#include "models/gpt/model.h"
#include "weft.h"

namespace {

using namespace weft;
using dist::Shard;

gpt::Config small() { return {.vocab = 32, .context = 8, .layers = 2, .heads = 2, .dim = 16, .ffn = 32}; }

struct Training {
  gpt::Model model{small()};
  optim::AdamW opt{model.parameters(), {.lr = 1e-2}};
  auto step() {
    return [this](Tensor tokens, Tensor targets) {
      Tensor loss = model.loss(tokens, targets).loss;
      opt.step(grad(loss, model.parameters()));
      return loss;
    };
  }
};

// Losses of three steps; `make` compiles.
template <class Make>
std::vector<double> losses(Make make) {
  manual_seed(3);
  Training t;
  auto step = make(t.step());
  std::vector<double> out;
  for (int i = 0; i < 3; ++i) {
    Tensor x = randint(0, 32, {4, 8}, {.dtype = kInt32}), y = randint(0, 32, {4, 8}, {.dtype = kInt32});
    out.push_back(step(x, y).template item<float>());
  }
  return out;
}

void expect_same(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]);
}

TEST(DistributedApi, OneModelAnyMesh) {
  const std::vector<double> want = losses([](auto fn) { return compile(fn); });
  dist::Mesh mesh({{"fsdp", 2}, {"tp", 2}});
  EXPECT_EQ(mesh.size(), 4);
  EXPECT_EQ(mesh.to_string(), "fsdp2,tp2");
  EXPECT_EQ(mesh, dist::Mesh::parse("fsdp2,tp2"));
  expect_same(losses([&](auto fn) { return dist::compile(fn, {.mesh = mesh}); }), want);
  expect_same(losses([&](auto fn) { return dist::compile(fn, {.mesh = mesh, .plan = dist::Plan::automatic()}); }),
              want);
}

TEST(DistributedApi, RulesPlaceParametersAndThePlanTellsThem) {
  manual_seed(3);
  Training t;
  const dist::Plan rules = {{"blocks.*.attn.qkv.weight", {{"tp", Shard(0)}}},
                            {"tok.weight", {{"tp", dist::Replicate()}}}};
  auto step = dist::compile(t.step(), {.mesh = dist::Mesh({{"dp", 2}, {"tp", 2}}), .plan = rules});
  const Tensor ids = zeros({4, 8}, {.dtype = kInt32});
  step.prepare(ids, ids);  // nothing has run
  const dist::PlanReport plan = step.plan();
  std::map<std::string, std::string> use;
  for (const dist::PlannedCell& c : plan.parameters()) use[c.name] = c.use;
  EXPECT_EQ(use["blocks.1.attn.qkv.weight"], "[48@tp, 16]");
  EXPECT_EQ(use["tok.weight"], "[32, 16]");
  EXPECT_FALSE(plan.collectives().empty());
  EXPECT_EQ(plan.peak_bytes(), step.stats().planned_peak_bytes);
  const std::string text = step.plan().to_string();
  for (const char* part : {"plan over dp2,tp2: 4 ranks", "blocks.*.attn.qkv.weight", "rule 'blocks.*.attn.qkv.weight'",
                           "all-reduce", "peak memory of a rank:", "step on cpu:"})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
}

TEST(DistributedApi, PlansBeforeAnythingIsMade) {
  manual_seed(3);
  Training t;
  const Tensor ids = zeros({4, 8}, {.dtype = kInt32});
  const dist::PlanReport p = dist::plan(t.step(), {.mesh = dist::Mesh::parse("dp2,tp2")}, ids, ids);
  EXPECT_EQ(p.mesh().size(), 4);
  EXPECT_FALSE(p.collectives().empty());
  // A step without a backward part has a plan, too.
  EXPECT_GT(dist::plan([](Tensor x) { return sum(x); }, {.mesh = dist::Mesh::parse("dp2")}, ids).peak_bytes(), 0);
}

TEST(DistributedApi, CollectivesByHand) {
  dist::run(dist::Mesh({{"tp", 2}}), [](int rank) {
    const Tensor x = full({2}, rank + 1.0f);
    EXPECT_EQ(dist::all_reduce(x, "tp").to_vector<float>(), (std::vector<float>{3, 3}));
    EXPECT_EQ(dist::all_gather(x, "tp").to_vector<float>(), (std::vector<float>{1, 1, 2, 2}));
    EXPECT_EQ(dist::reduce_scatter(x, "tp").to_vector<float>(), (std::vector<float>{3}));
    EXPECT_EQ(dist::all_to_all_single(x, "tp").to_vector<float>(), (std::vector<float>{1, 2}));
    EXPECT_EQ(dist::broadcast(x, "tp").to_vector<float>(), (std::vector<float>{1, 1}));
    if (rank == 0) dist::send(x, "tp", 1);
    if (rank == 1) {
      EXPECT_EQ(dist::recv(x, "tp", 0).to_vector<float>(), (std::vector<float>{1, 1}));
    }
  });
}

}  // namespace
