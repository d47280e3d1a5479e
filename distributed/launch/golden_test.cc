// The collectives of one dense transformer block and its loss over dp, cp and tp with sharded parameters, one by one;
// and the vectors (published or computed figures) that the partitioner must reproduce.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "distributed/launch/compile.h"
#include "distributed/launch/testing/gpt_training.h"
#include "distributed/plan/collective_names.h"
#include "distributed/strategies/strategy.h"
#include "models/llama/model.h"
#include "models/moe/model.h"

namespace weft::dist {
namespace {

using Counts = std::map<std::string, int64_t>;

PlanReport plan_of(int64_t layers, const std::string& mesh, int zero, bool sequence = true) {
  gpt::Config config = testing::small_gpt();
  config.layers = layers;
  manual_seed(7);
  testing::GptTraining t(config);
  CompileOptions o;
  o.mesh = Mesh::parse(mesh);
  o.plan.zero = zero;
  o.plan.sequence = sequence;
  o.communication = std::make_shared<CommunicationOptions>(CommunicationOptions{.bucket = false, .overlap = false});
  const Tensor x = zeros({4, 16}, {.dtype = kInt32});
  return plan([&](Tensor tokens, Tensor targets) { return t(tokens, targets); }, o, x, x);
}

// Counts by line of the plan: "forward activations all-gather@tp".
Counts counts_of(const PlanReport& p) {
  Counts n;
  for (const PlannedCollective& c : p.collectives())
    ++n[str_cat(to_string(c.phase), " ", to_string(c.subject), " ", title(c.kind), "@", c.axes)];
  return n;
}

std::string list_of(const PlanReport& p) {
  std::string s;
  for (const PlannedCollective& c : p.collectives())
    s += str_cat(to_string(c.phase), " ", title(c.kind), "@", c.axes, " ", c.bytes, " ", to_string(c.subject), " ",
                 c.what, " ", c.line, "; ", c.why, "\n");
  return s;
}

// The collectives that one more layer adds.
Counts per_layer(const std::string& mesh, int zero, bool sequence = true) {
  Counts two = counts_of(plan_of(2, mesh, zero, sequence));
  for (const auto& [what, n] : counts_of(plan_of(1, mesh, zero, sequence))) two[what] -= n;
  std::erase_if(two, [](const auto& x) { return x.second == 0; });
  return two;
}

void expect_counts(const Counts& got, const Counts& want, const std::string& list) {
  std::string text;
  for (const auto& [what, n] : got) text += str_cat(what, " ", n, "\n");
  EXPECT_EQ(got, want) << text << list;
}

// The table of one block. Sequence parallelism has two gathers and two scatters in forward and in backward, and
// backward gathers again for the gradients of column-parallel matrices. Each parameter is gathered in forward, matrices
// again in backward, and gradients are scattered once. Keys and values are gathered over cp, again in backward, and
// their gradients scattered.
TEST(Golden, DenseLayer) {
  const PlanReport one = plan_of(1, "dp2,cp2,tp2", 3);
  expect_counts(per_layer("dp2,cp2,tp2", 3),
                {{"forward activations all-gather@tp", 2},
                 {"forward activations reduce-scatter@tp", 2},
                 {"forward activations all-gather@cp", 2},
                 {"backward activations all-gather@tp", 4},
                 {"backward activations reduce-scatter@tp", 2},
                 {"backward activations all-gather@cp", 2},
                 {"backward activations reduce-scatter@cp", 2},
                 {"forward parameters all-gather@dp,cp", 12},
                 {"backward parameters all-gather@dp,cp", 4},
                 {"backward gradients reduce-scatter@dp,cp", 12},
                 {"backward gradients all-reduce@tp", 6}},
                list_of(one));
}

TEST(Golden, DataParallelLayer) {
  expect_counts(per_layer("dp4", 0), {{"backward gradients all-reduce@dp", 12}}, list_of(plan_of(1, "dp4", 0)));
  expect_counts(per_layer("fsdp4", 3),
                {{"forward parameters all-gather@fsdp", 12},
                 {"backward parameters all-gather@fsdp", 4},
                 {"backward gradients reduce-scatter@fsdp", 12}},
                list_of(plan_of(1, "fsdp4", 3)));
  expect_counts(per_layer("dp4", 1),
                {{"backward gradients reduce-scatter@dp", 12}, {"update parameters all-gather@dp", 12}},
                list_of(plan_of(1, "dp4", 1)));
}

// Shards of gradients cross replicas, in sums of their own, and nothing else does.
TEST(Golden, ReplicasOfALayer) {
  const PlanReport one = plan_of(1, "replica2,fsdp2", 3);
  expect_counts(per_layer("replica2,fsdp2", 3),
                {{"forward parameters all-gather@fsdp", 12},
                 {"backward parameters all-gather@fsdp", 4},
                 {"backward gradients reduce-scatter@fsdp", 12},
                 {"backward gradients all-reduce@replica", 12}},
                list_of(one));
  std::map<std::string, int64_t> scattered;  // bytes of a gradient before its reduce-scatter
  for (const PlannedCollective& c : one.collectives()) {
    if (c.subject == Subject::kGradient && c.kind == Collective::kReduceScatter) scattered[c.what] = c.bytes;
    if (c.axes.find("replica") == std::string::npos) continue;
    EXPECT_EQ(c.axes, "replica");
    EXPECT_EQ(c.kind, Collective::kAllReduce);
    if (c.subject == Subject::kGradient) {
      EXPECT_EQ(2 * c.bytes, scattered[c.what]) << c.what;
    }
  }
  EXPECT_EQ(one.to_string().substr(0, 35), "plan over replica2,fsdp2: 4 ranks; ");
}

// A column-parallel and a row-parallel product need one reduction together: two in a block and two in its backward.
TEST(Golden, TensorParallelLayerWithoutSequence) {
  expect_counts(per_layer("tp2", 0, false),
                {{"forward activations all-reduce@tp", 2}, {"backward activations all-reduce@tp", 2}},
                list_of(plan_of(1, "tp2", 0, false)));
}

PlanReport moe_plan_of(int64_t layers, const std::string& mesh, int zero, double capacity, double aux = 0,
                       bool sequence = true) {
  moe::Config config;
  config.vocab = 48;
  config.context = 16;
  config.layers = layers;
  config.heads = config.kv_heads = 4;
  config.dim = 32;
  config.experts = 8;
  config.top_k = 2;
  config.ffn = 24;
  config.shared_ffn = 0;
  config.dense_layers = 0;
  config.capacity_factor = capacity;
  config.bias_rate = 1e-3;
  config.aux_loss = aux;
  manual_seed(7);
  moe::Model model(config);
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-3});
  CompileOptions o;
  o.mesh = Mesh::parse(mesh);
  o.plan.zero = zero;
  o.plan.sequence = sequence;
  o.communication = std::make_shared<CommunicationOptions>(CommunicationOptions{.bucket = false, .overlap = false});
  const Tensor x = zeros({4, 16}, {.dtype = kInt32});
  return plan(
      [&](Tensor tokens, Tensor targets) {
        nn::LossOut l = model.loss(tokens, targets);
        auto [g, norm] = optim::clip_grad_norm(grad(l.loss, opt.parameters()), 1.0);
        opt.step(g);
        model.update_balance(l.expert_counts);
        return std::vector<Tensor>{l.loss, norm, l.expert_load, l.dropped};
      },
      o, x, x);
}

Counts per_moe_layer(const std::string& mesh, int zero, double capacity, double aux = 0, bool sequence = true) {
  Counts two = counts_of(moe_plan_of(2, mesh, zero, capacity, aux, sequence));
  for (const auto& [what, n] : counts_of(moe_plan_of(1, mesh, zero, capacity, aux, sequence))) two[what] -= n;
  std::erase_if(two, [](const auto& x) { return x.second == 0; });
  return two;
}

// Attention is as in a dense layer. The router runs on each rank's own tokens. Ranks exchange their row counts once;
// then rows are sent to their experts and back, once each in forward and in backward. Experts are split over cp x tp:
// their weights are gathered over dp only, and their gradients scattered over dp only. The counts of all tokens are
// summed once, for the balance.
TEST(Golden, ExpertLayer) {
  const std::string mesh = "dp2,cp2,tp2,ep4(cp,tp)";
  const Counts want = {{"forward activations all-gather@tp", 1},
                       {"forward activations reduce-scatter@tp", 1},
                       {"forward activations all-gather@cp", 2},
                       {"backward activations all-gather@tp", 2},
                       {"backward activations reduce-scatter@tp", 1},
                       {"backward activations all-gather@cp", 2},
                       {"backward activations reduce-scatter@cp", 2},
                       {"forward parameters all-gather@dp,cp", 5},   // two norms, qkv, out, router
                       {"backward parameters all-gather@dp,cp", 3},  // qkv, out, router
                       {"backward gradients reduce-scatter@dp,cp", 5},
                       {"backward gradients all-reduce@tp", 3},   // norms, router: their tokens are split over tp
                       {"forward activations all-to-all@ep", 3},  // the counts, dispatch, combine
                       {"backward activations all-to-all@ep", 2},
                       {"forward activations all-reduce@dp,ep", 1},  // the counts
                       {"forward parameters all-gather@dp", 3},
                       {"backward parameters all-gather@dp", 3},
                       {"backward gradients reduce-scatter@dp", 3}};
  for (const double aux : {0.0, 0.01}) {
    // The aux loss, the balance and the report share the same counts, so they are summed once: for the loss of each
    // layer, and without it in one sum for all layers.
    Counts got = per_moe_layer(mesh, 3, 0, aux);
    int64_t added = 0;
    for (const char* phase : {"forward", "backward", "update"}) {
      const auto it = got.find(str_cat(phase, " activations all-reduce@dp,ep"));
      if (it != got.end()) added += it->second, got.erase(it);
    }
    Counts each = want;
    if (aux == 0) each.erase("forward activations all-reduce@dp,ep");
    if (added) got["forward activations all-reduce@dp,ep"] = added;
    expect_counts(got, each, list_of(moe_plan_of(1, mesh, 3, 0, aux)));
  }
}

// Without sequence parallelism, tp splits every expert like a feed-forward layer. Partial sums are added over a token's
// rows before ranks add them: tokens d itemsize, forward and backward, and dots with the router's weights.
TEST(Golden, SlicedExperts) {
  const PlanReport p = moe_plan_of(1, "tp2", 0, 0, 0, false);
  for (const PlannedCell& c : p.parameters()) {
    if (c.name.find(".moe.w") == c.name.npos) continue;
    EXPECT_EQ(c.bytes * 2, c.type.nbytes()) << c.name;
    EXPECT_EQ(c.use, c.name.ends_with("w2") ? "[8, 24@tp, 32]" : "[8, 32, 24@tp]") << c.name;
  }
  expect_counts(per_moe_layer("tp2", 0, 0, 0, false),
                {{"forward activations all-reduce@tp", 2}, {"backward activations all-reduce@tp", 3}}, list_of(p));
  const int64_t tokens = 4 * 16, d = 32, k = 2, itemsize = 4;
  for (const PlannedCollective& c : p.collectives()) {
    if (c.what.find(".moe") == c.what.npos) continue;
    EXPECT_TRUE(c.bytes == tokens * d * itemsize || c.bytes == tokens * k * itemsize) << list_of(p);
  }
}

// V29: bytes of a layer's experts on a rank's link are tokens k d itemsize (ep - 1) / ep, twice forward and twice
// backward.
TEST(Golden, ExpertBytes) {
  for (const auto& [mesh, ranks, ep] :
       {std::tuple("ep2", 2, 2), std::tuple("ep4", 4, 4), std::tuple("dp2,ep2", 4, 2),
        std::tuple("dp2,tp2,ep4(dp,tp)", 4, 4), std::tuple("dp2,cp2,tp2,ep4(cp,tp)", 8, 4)}) {
    for (const int64_t layers : {1, 2}) {
      const PlanReport p = moe_plan_of(layers, mesh, 3, 0);
      const double tokens = 4.0 * 16 / ranks, k = 2, d = 32, itemsize = 4;
      const double want = tokens * k * d * itemsize * (ep - 1) / ep;
      double sum = 0;
      for (const PlannedCollective& c : p.collectives()) {
        if (c.what.find("all_to_all_rows") == c.what.npos) continue;
        EXPECT_EQ(c.axes, "ep");
        sum += static_cast<double>(c.bytes) * bus_factor(c.kind, ep);
      }
      EXPECT_EQ(sum, 4 * static_cast<double>(layers) * want) << mesh << "\n" << list_of(p);
    }
  }
}

// If there is a capacity, the buffer [E C, D] has the slots of one device, so a token of any rank may use any slot.
// index_add over split tokens leaves partial sums of the whole buffer on every rank. They are scattered to the experts'
// ranks: each rank sends E C D (n - 1) / n. On the way back the buffer is gathered, because every rank reads its
// tokens' slots from all of it: the same bytes again. Backward mirrors both. GShard gives each rank C / n slots: its
// all-to-alls send 1 / n of these bytes, but it drops different tokens than one device. Dropless experts send no more
// than GShard.
TEST(Golden, CapacityBytes) {
  const int64_t experts = 8, k = 2, tokens = 4 * 16, d = 32, n = 4;
  const int64_t places = experts * static_cast<int64_t>(std::ceil(1.25 * static_cast<double>(tokens * k) / experts));
  const PlanReport p = moe_plan_of(1, "ep4", 3, 1.25);
  std::map<std::string, double> sent;
  for (const PlannedCollective& c : p.collectives())
    if (c.subject == Subject::kActivation && c.what.find(".moe") != c.what.npos && c.bytes >= places * d * 4)
      sent[str_cat(to_string(c.phase), " ", title(c.kind))] += static_cast<double>(c.bytes) * bus_factor(c.kind, n);
  const double buffer = static_cast<double>(places * d * 4) * (n - 1) / n;
  const std::map<std::string, double> want = {{"forward reduce-scatter", buffer},
                                              {"forward all-gather", buffer},
                                              {"backward reduce-scatter", buffer},
                                              {"backward all-gather", buffer}};
  EXPECT_EQ(sent, want) << list_of(p);
}

// Logits are split over the vocabulary, so the loss exchanges only a few numbers for each token. Then one reduction of
// the loss, one of its token count, one of the gradients' norm.
TEST(Golden, Loss) {
  const PlanReport p = plan_of(1, "dp2,cp2,tp2", 3);
  const int64_t tokens = 4 * 16 / 4, number = 4;
  int64_t scalars = 0, loss = 0, norm = 0;
  for (const PlannedCollective& c : p.collectives()) {
    if (c.line.find("language_model.cc") != c.line.npos) {
      EXPECT_LE(c.bytes, tokens * number) << c.what << " " << c.why;
      scalars += c.axes == "tp";
      loss += c.axes != "tp" && c.why.find("the result") != c.why.npos;
    }
    norm += c.line.find("gpt_training.h") != c.line.npos;  // the line of clip_grad_norm
  }
  EXPECT_EQ(scalars, 3) << list_of(p);  // the maximum, the sum, the target's logit
  EXPECT_EQ(loss, 1) << list_of(p);
  EXPECT_EQ(norm, 1) << list_of(p);
}

// ---- vectors ----

// A strategy with which every rank has whole results of all elementwise ops in forward.
class WholeElementwise final : public Lowering {
 public:
  bool claim(SplitNode& n, std::string&) const override {
    if (!n.node.backward && n.node.op->is(kPointwise)) n.split = whole(n.rule);
    return false;
  }
};
const Strategy kWholeElementwise = {.name = "whole_elementwise", .annotate = [](StrategyContext& s) {
                                      s.pins.lowerings.push_back(std::make_shared<WholeElementwise>());
                                    }};

// y = gelu(x a) b with its gradients over tp4: columns of a, rows of b. `sandwich`: gelu computes on the columns.
PlanReport mlp_plan(bool sandwich) {
  const Parameter x(zeros({16, 8}), "x"), a(zeros({8, 32}), "a"), b(zeros({32, 8}), "b");
  CompileOptions o;
  o.mesh = Mesh::parse("tp4");
  o.plan = {{"x", {{"tp", Replicate()}}}, {"a", {{"tp", Shard(1)}}}, {"b", {{"tp", Shard(0)}}}};
  if (!sandwich) o.plan.strategies = {&kWholeElementwise};
  return plan(
      [&] {
        const Tensor y = matmul(gelu(matmul(x.value(), a.value())), b.value());
        std::vector<Tensor> all = grad(sum(square(y)), {x.value(), a.value(), b.value()});
        all.push_back(y);
        return all;
      },
      o);
}

double count_of(const PlanReport& p, Phase phase, Collective kind) {
  return static_cast<double>(
      std::count_if(p.collectives().begin(), p.collectives().end(),
                    [&](const PlannedCollective& c) { return c.phase == phase && c.kind == kind; }));
}

// Bytes that a layer's forward pass sends over tp8.
double forward_bytes_of_layer(bool sequence) {
  const auto sent = [&](int64_t layers) {
    const PlanReport p = plan_of(layers, "tp2", 0, sequence);
    double bytes = 0;
    for (const PlannedCollective& c : p.collectives())
      if (c.phase == Phase::kForward && c.axes == "tp") bytes += static_cast<double>(c.bytes) * bus_factor(c.kind, 2);
    return bytes;
  };
  return sent(2) - sent(1);
}

double in_layer(bool sequence, const char* what) {
  const Counts n = per_layer("tp2", 0, sequence);
  const auto at = n.find(what);
  return at == n.end() ? 0 : static_cast<double>(at->second);
}

// The dim of a weight [out, in] of Llama 8B that is split over tp8, for one sequence of 16,384 tokens.
double split_dim_of_8b(const std::string& weight) {
  llama::Config config = llama::preset("llama-8b");
  config.layers = 1;
  config.context = 16384;
  llama::Model model(config);
  model.to(kBFloat16);
  optim::AdamW opt(model.parameters(), {.lr = 1e-3});
  CompileOptions o;
  o.mesh = Mesh::parse("tp8");
  const Tensor x = zeros({1, 16384}, {.dtype = kInt32});
  const PlanReport p = plan(
      [&](Tensor tokens, Tensor targets) {
        const Tensor loss = model.loss(tokens, targets).loss;
        opt.step(grad(loss, opt.parameters()));
        return loss;
      },
      o, x, x);
  for (const PlannedCell& c : p.parameters())
    if (c.name.ends_with(weight))
      for (const auto& [dimension, dim] : c.split)
        if (dimension == "tp") return dim;
  ADD_FAILURE() << weight << " is not split\n" << p.to_string();
  return -1;
}

// The time in which tp8 gathers the tokens for a weight, relative to a gather of the weight itself (both with K
// columns).
double forward_rule(double tokens, double out, double in) {
  const Machine& m = machine_preset("h100-sxm");
  const auto gather = [&](double rows) { return collective_seconds(Collective::kAllGather, rows * in * 2, 8, 1, m); };
  return gather(tokens) / gather(out);
}

// The most over the least causal work of a rank as the partitioner places rows; row i counts i + 1/2 columns.
double most_over_least(int c, SegLayout layout) {
  const Mesh mesh({{"cp", c}});
  std::vector<double> work(static_cast<size_t>(c));
  for (int rank = 0; rank < c; ++rank)
    for (int64_t i : global_indices(mesh, one_segment(16 * c, mesh.axes("cp"), layout), rank))
      work[static_cast<size_t>(rank)] += static_cast<double>(i) + 0.5;
  const auto [least, most] = std::minmax_element(work.begin(), work.end());
  return *most / *least;
}

struct Row {
  const char *vector, *input, *formula;
  std::function<double()> got;
  double expected, tolerance;  // relative
};

const Row kRows[] = {
    {"V13", "column, gather, gelu, cut, row: all-gathers of forward", "1",
     [] { return count_of(mlp_plan(false), Phase::kForward, Collective::kAllGather); }, 1, 0},
    {"V13", "column, gather, gelu, cut, row: all-reduces of forward", "1",
     [] { return count_of(mlp_plan(false), Phase::kForward, Collective::kAllReduce); }, 1, 0},
    {"V13", "sandwich: all-gathers of forward", "0",
     [] { return count_of(mlp_plan(true), Phase::kForward, Collective::kAllGather); }, 0, 0},
    {"V13", "sandwich: all-reduces of forward", "1",
     [] { return count_of(mlp_plan(true), Phase::kForward, Collective::kAllReduce); }, 1, 0},
    {"V13", "transformer block: all-reduces of forward", "2",
     [] { return in_layer(false, "forward activations all-reduce@tp"); }, 2, 0},
    {"V13", "transformer block: all-reduces of forward and backward", "4",
     [] {
       return in_layer(false, "forward activations all-reduce@tp") +
              in_layer(false, "backward activations all-reduce@tp");
     },
     4, 0},
    {"V13", "transformer block, sequence parallel: all-gathers of forward", "2",
     [] { return in_layer(true, "forward activations all-gather@tp"); }, 2, 0},
    {"V13", "transformer block, sequence parallel: reduce-scatters of forward", "2",
     [] { return in_layer(true, "forward activations reduce-scatter@tp"); }, 2, 0},
    {"V13", "transformer block: bytes of forward with sequence parallelism over those without", "1",
     [] { return forward_bytes_of_layer(true) / forward_bytes_of_layer(false); }, 1, 1e-12},

    // A rule based on forward's bytes alone would gather q, k, v and w1 of Llama 8B. It ignores backward, the whole
    // sequences that attention needs, and the gather that w1 and w3 share. The partitioner splits all four by columns.
    {"V28", "70B w1, 16,384 tokens: gathering tokens over gathering the weight", "M / N = 16384 / 28672",
     [] { return forward_rule(16384, 28672, 8192); }, 16384. / 28672, 0.05},
    {"V28", "8B wq, 16,384 tokens: the rule alone says sequence", "M / N = 16384 / 4096",
     [] { return forward_rule(16384, 4096, 4096); }, 4, 0.2},
    {"V28", "8B w1, 16,384 tokens: the rule alone says sequence", "M / N = 16384 / 14336",
     [] { return forward_rule(16384, 14336, 4096); }, 16384. / 14336, 0.05},
    {"V28", "8B wq, wk and wv (one weight), placed by the partitioner", "columns: dim 0",
     [] { return split_dim_of_8b("attn.qkv.weight"); }, 0, 0},
    {"V28", "8B w1, placed by the partitioner", "columns: dim 0", [] { return split_dim_of_8b("gate.weight"); }, 0, 0},
    {"V28", "8B wo, placed by the partitioner: its result is scattered over the sequence", "rows: dim 1",
     [] { return split_dim_of_8b("attn.out.weight"); }, 1, 0},

    {"V30", "chunks i and 2c - 1 - i, c = 2: most over least work", "1",
     [] { return most_over_least(2, SegLayout::kHeadTail); }, 1, 0},
    {"V30", "c = 8", "1", [] { return most_over_least(8, SegLayout::kHeadTail); }, 1, 0},
    {"V30", "contiguous, c = 2", "2 c - 1 = 3", [] { return most_over_least(2, SegLayout::kBlock); }, 3, 0},
    {"V30", "contiguous, c = 8", "2 c - 1 = 15", [] { return most_over_least(8, SegLayout::kBlock); }, 15, 0},
};

TEST(Golden, Vectors) {
  for (const Row& r : kRows)
    EXPECT_NEAR(r.got(), r.expected, r.tolerance * r.expected) << r.vector << ": " << r.input << ": " << r.formula;
}

}  // namespace
}  // namespace weft::dist
