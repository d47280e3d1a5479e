// Errors of a mesh and a plan: each is one sentence, before anything is allocated. Other tests cover failed and skipped
// steps.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>

#include "compiler/exec/run/trace.h"
#include "compiler/targets/cpu/target.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/world.h"
#include "distributed/strategies/strategies.h"
#include "distributed/strategies/strategy.h"
#include "framework/base/switches.h"
#include "framework/base/testing/error_of.h"
#include "models/gpt/model.h"
#include "models/moe/model.h"
#include "weft.h"

namespace weft::dist {
namespace {

using testing::error_of;
using testing::expect_has;
using testing::placed_error_of;

struct Sizes {
  int64_t batch = 4, length = 16;
  int64_t heads = 4, dim = 32, ffn = 64;
};

std::string notes_of(const PlanReport& p) {
  std::string s;
  for (const std::string& n : p.notes()) s += n + "\n";
  return s;
}

PlanReport plan_gpt(const std::string& mesh, const Plan& plan = {}, const Sizes& z = {}) {
  manual_seed(7);
  gpt::Model model({.vocab = 48, .context = 32, .layers = 1, .heads = z.heads, .dim = z.dim, .ffn = z.ffn});
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-3});
  const Tensor x = zeros({z.batch, z.length}, {.dtype = kInt32});
  return dist::plan(
      [&](Tensor tokens, Tensor targets) {
        Tensor loss = model.loss(tokens, targets).loss;
        opt.step(grad(loss, opt.parameters()));
        return loss;
      },
      {.mesh = Mesh::parse(mesh), .plan = plan}, x, x);
}

PlanReport plan_moe(const std::string& mesh, int64_t experts) {
  moe::Config c;
  c.vocab = 48;
  c.context = 16;
  c.layers = 1;
  c.heads = c.kv_heads = 4;
  c.dim = 32;
  c.experts = experts;
  c.top_k = 2;
  c.ffn = 32;
  moe::Model model(c);
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-3});
  const Tensor x = zeros({8, 16}, {.dtype = kInt32});
  return dist::plan(
      [&](Tensor tokens, Tensor targets) {
        Tensor loss = model.loss(tokens, targets).loss;
        opt.step(grad(loss, opt.parameters()));
        return loss;
      },
      {.mesh = Mesh::parse(mesh)}, x, x);
}

std::string refused(const std::string& mesh, const Plan& plan = {}, const Sizes& z = {}) {
  return error_of([&] { plan_gpt(mesh, plan, z); });
}

Plan with_cp(const char* cp, const char* layout = "auto") {
  Plan p;
  p.cp = cp;
  p.cp_layout = layout;
  return p;
}
Plan with_zero(int stage) {
  Plan p;
  p.zero = stage;
  return p;
}

TEST(MeshErrors, WorkThatDoesNotDivide) {
  expect_has(refused("dp3"),
             "mesh dp3: a batch of 4 (argument i32[4, 16]) does not divide over dp (3 ranks); the nearest batches "
             "that do are 3 and 6");
  expect_has(refused("dp2,fsdp4"), "does not divide over dp,fsdp (8 ranks); the least that does is 8");
  expect_has(refused("cp3"),
             "sequences of 16 (argument i32[4, 16]) do not divide over cp (3 ranks); the nearest lengths that do "
             "are 15 and 18");
  expect_has(refused("cp2", with_cp("ring", "headtail"), {.length = 18}),
             "headtail needs sequences that divide into 4 chunks");
  expect_has(refused("cp8", with_cp("ulysses")), "4 key heads");
  expect_has(refused("cp8", with_cp("ulysses")),
             "over cp (8 ranks) do not divide; need a divisor of 4, or cp ring or allgather");
  expect_has(error_of([] { plan_moe("ep4", 2); }), "over ep4; need ep of at most 2");
  expect_has(error_of([] { plan_moe("dp2,tp2,ep4(dp,tp)", 3); }), "3 experts ('blocks.0.moe.w");
}

// If a request cannot be met but there is an alternative, the plan uses it and the report says so.
TEST(MeshErrors, NothingIsLeftOutSilently) {
  expect_has(notes_of(plan_gpt("cp2", with_cp("ring"), {.length = 18})), "cp ring: attention at models/gpt/model.cc:");
  expect_has(notes_of(plan_gpt("cp2", with_cp("ring"), {.length = 18})),
             "over 18 keys and 18 queries gathers its keys; a ring "
             "needs equal numbers of both, a multiple of 4");
  expect_has(notes_of(plan_gpt("tp8")), "tp: 'blocks.0.attn.qkv.weight' is split over 4 of 8 ranks only");
  expect_has(notes_of(plan_gpt("tp4", {}, {.ffn = 2})),
             "[2, 32] is whole on every rank of tp: a dim of 2 has less than 4 parts");
  expect_has(notes_of(plan_gpt("tp4", {}, {.ffn = 66})), "unevenly: 'blocks.0.");
  expect_has(notes_of(plan_gpt("tp4", {}, {.length = 18})),
             "sequence parallelism: a sequence of 18 does not divide over 4 ranks (tp)");
  expect_has(notes_of(plan_moe("ep4", 6)), "unevenly: 'blocks.0.moe.");
  expect_has(notes_of(plan_gpt("ep2")), "ep: the step has no experts");
  expect_has(notes_of(plan_gpt("tp2", with_zero(3))), "zero 3: the mesh has no dp, fsdp, cp or ep to shard over");
  // Microbatches are slices of 3 rows over two ranks.
  Parameter w(ones({4}));
  auto fn = [&](Tensor a) {
    Tensor l = zeros({});
    for (int i = 0; i < 4; ++i) l = l + sum(slice(a, 0, i * 3, i * 3 + 3) * w.value());
    return l;
  };
  expect_has(notes_of(dist::plan(fn, {.mesh = Mesh::parse("dp2")}, ones({12, 4}))),
             "3 of dim 0 do not divide over dp (2)");
}

TEST(MeshErrors, MeshesAndOptions) {
  expect_has(refused("xy2"), "mesh xy2: no strategy for dimension 'xy'; need dp, fsdp, ep, tp, cp, pp or replica");
  EXPECT_EQ(refused("replica2"), "");
  expect_has(
      refused("dp2,pp2"),
      "pp: the step has no accumulate() of 2 parts or more with detached results; need accumulate(microbatches, batch, "
      "fn) with grad() and detach() inside fn");
  EXPECT_EQ(refused("dp2,pp1"), "");
  expect_has(refused("dp2", with_zero(4)), "plan: zero is 4; need a stage from 0 to 3");
  expect_has(refused("dp2", with_zero(-2)), "plan: zero is -2; need a stage from 0 to 3");
  expect_has(refused("cp2", with_cp("rings")), "plan: cp is 'rings'; need allgather, ring or ulysses");
  expect_has(refused("cp2", with_cp("ring", "zigzag")),
             "plan: cp_layout is 'zigzag'; need auto, contiguous, headtail or documents");
  expect_has(error_of([] { Mesh::parse("dp1000,tp1000,cp1000"); }), "mesh: more than 1048576 ranks");
  Parameter w(ones({4}));
  auto fn = [&](Tensor x) { return sum(x * w.value()); };
  auto step = compile(fn, {.mesh = Mesh::parse("dp8192")});
  expect_has(error_of([&] { step(ones({8192, 4})); }), "8192 ranks as threads of one process; need at most 4096");
}

TEST(MeshErrors, VerifyFindsAWrongKernelOfARank) {
  internal::fault_for_test = [](loop_ir::Lowered& low) {
    for (loop_ir::Instr& i : low.kernel.instrs)
      if (i.op == loop_ir::Op::kPw && i.pw == kernels::Pw::mul) i.pw = kernels::Pw::add;
  };
  auto step = compile([](Tensor x) { return sum(tanh(x * 7.125) * x); }, {.mesh = Mesh::parse("dp2"), .verify = true});
  const std::string error = error_of([&] { step(full({8, 4}, 0.5)); });
  internal::fault_for_test = nullptr;
  expect_has(error, "verify: kernel ");
  expect_has(error, "first differs from its ops run one by one");
}

TEST(MeshErrors, OnlyCompiledStepsRun) {
  auto fn = [](Tensor x) { return sum(x); };
  const std::string was = switch_value("WEFT_EXEC");
  for (const char* exec : {"interp", "eager"}) {
    set_switch("WEFT_EXEC", exec);
    EXPECT_EQ(error_of([&] { compile(fn, {.mesh = Mesh::parse("dp2")}); }),
              str_cat("WEFT_EXEC: got '", exec, "' for mesh dp2; need compiled: a mesh runs compiled steps only"));
    EXPECT_EQ(error_of([&] { compile(fn, {})(ones({2})); }), "");
  }
  set_switch("WEFT_EXEC", was);
}

TEST(MeshErrors, OptionsOfOneDevice) {
  auto fn = [](Tensor x) { return sum(x); };
  const Mesh mesh = Mesh::parse("dp2");
  EXPECT_EQ(error_of([&] { compile(fn, {.mesh = mesh, .tf32 = true}); }),
            "compile: tf32 is true for mesh dp2; need false: the ranks are threads of the CPU");
  EXPECT_EQ(error_of([&] { compile(fn, {.mesh = mesh, .enabled = false}); }),
            "compile: enabled is false for mesh dp2; need true: only captured steps run on a mesh");
  EXPECT_EQ(error_of([&] { compile(fn, {.plan = Plan::automatic(4), .tf32 = true}); }).rfind("compile: tf32 is", 0),
            0u);
  EXPECT_EQ(error_of([&] { weft::compile(fn, {.mesh = mesh}); }),
            "compile: the options have more than one rank; need dist::compile of distributed/distributed.h");
  EXPECT_EQ(error_of([&] { compile(fn, {.mesh = mesh, .plan = Plan::automatic(2)}); }),
            "compile: plan is automatic(2), which chooses the mesh, and mesh is dp2; need one of them: automatic() "
            "chooses the options for a given mesh");
  expect_has(placed_error_of([&] { compile(fn, {.mesh = mesh, .tf32 = true}); }),
             str_cat("; at distributed/launch/errors_test.cc:", __LINE__ - 1));
  EXPECT_EQ(compile(fn, {.mesh = mesh, .cuda_graph = false})(ones({4})).item<float>(), 4);
  EXPECT_EQ(compile(fn, {.verify = true, .tf32 = true})(ones({4})).item<float>(), 4);
}

TEST(MeshErrors, PlansAreChecked) {
  const auto error = [](Plan plan, const char* mesh = "dp2") {
    return error_of([&] { compile([](Tensor x) { return sum(x); }, {.mesh = Mesh::parse(mesh), .plan = plan}); });
  };
  Plan p;
  p.more = {{"zeros", "3"}};
  for (const char* mesh : {"dp2", ""})
    EXPECT_EQ(
        error(p, mesh),
        "plan: more has 'zeros', which is no option of a strategy of this plan; need none: the strategies have no "
        "such options");
  p.more = {{"zero", "3"}};
  EXPECT_EQ(error(p), "plan: more has 'zero'; need it as the member Plan::zero");
  p = {};
  p.strategies = {nullptr};
  EXPECT_EQ(error(p), "plan: strategies[0] is null; need the address of a Strategy");
  p.choose = true;
  EXPECT_EQ(error(p), "plan: strategies[0] is null; need the address of a Strategy");
}

TEST(MeshErrors, Machines) {
  auto fn = [](Tensor x) { return sum(x); };
  const Mesh mesh = Mesh::parse("dp2");
  for (const CompileOptions& how :
       {CompileOptions{.machine = "h1000"}, CompileOptions{.mesh = mesh, .machine = "h1000"}})
    expect_has(error_of([&] { dist::compile(fn, how); }),
               "machine: got 'h1000'; need one of cpu, h100-sxm, h100-pcie, h200");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [&](const std::function<void(Machine&)>& change) {
    CommunicationOptions o;
    change(o.machine);
    return error_of(
        [&] { dist::compile(fn, {.mesh = mesh, .communication = std::make_shared<const CommunicationOptions>(o)}); });
  };
  EXPECT_EQ(refused([](Machine&) {}), "");
  EXPECT_EQ(refused([&](Machine& m) { m.flops = nan; }), "machine 'cpu': flops is nan; need a finite number above 0");
  EXPECT_EQ(refused([](Machine& m) { m.bytes = 0; }), "machine 'cpu': bytes is 0; need a finite number above 0");
  EXPECT_EQ(refused([](Machine& m) { m.links.inner_bus = -1; }),
            "machine 'cpu': links.inner_bus is -1; need a finite number above 0");
  EXPECT_EQ(refused([](Machine& m) { m.launch = -1; }), "machine 'cpu': launch is -1; need seconds from 0 to 10");
  EXPECT_EQ(refused([](Machine& m) { m.links.node = 0; }),
            "machine 'cpu': links.node is 0; need 1 device of a node or more");
  EXPECT_EQ(refused([](Machine& m) {
              m.links.inner_gather = {{2, 1e-6, 1e9}};
            }),
            "machine 'cpu': links.inner_gather has 1 point; need 2 or more, or none");
  EXPECT_EQ(refused([](Machine& m) {
              m.links.inner_gather = {{4, 1e-6, 1e9}, {2, 1e-6, 1e9}};
            }),
            "machine 'cpu': links.inner_gather has a point for 2 after one for 4; need rising numbers above 0");
  for (const std::string& name : machine_names()) check_machine(machine_preset(name));
}

TEST(MeshErrors, TracesNameTheRank) {
  const std::string path = str_cat(::testing::TempDir(), "/mesh.json"), was = switch_value("WEFT_TRACE");
  set_switch("WEFT_TRACE", path);
  compile([](Tensor x) { return sum(x * 3.0); }, {.mesh = Mesh::parse("dp2")})(ones({4, 4}));
  flush_trace();
  set_switch("WEFT_TRACE", was);
  std::ifstream in(path);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  for (int rank : {0, 1}) {
    expect_has(text, str_cat("\"pid\":", rank + 2, ",\"tid\":"));
    expect_has(text, str_cat(",\"rank\":", rank, "}}"));
    expect_has(text, str_cat("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":", rank + 2,
                             ",\"args\":{\"name\":\"rank ", rank, "\"}}"));
  }
}

// Products along mesh dimension "refused" cannot be emitted.
struct Refuses final : Lowering {
  bool claim(SplitNode& n, std::string&) const override { return n.node.op == &dot_op; }
  std::vector<Tensor> emit(const LocalCall&) const override {
    internal::fail(Code::kUnimplemented, "refused: no products");
  }
};
constexpr std::string_view kRefused[] = {"refused"};
const Strategy kRefusing = {.name = "refusing", .dimensions = kRefused, .annotate = [](StrategyContext& s) {
                              s.pins.lowerings.push_back(std::make_shared<Refuses>());
                            }};

TEST(MeshErrors, OfEmissionNameTheLine) {
  Parameter w(ones({4, 4}));
  Plan p;
  p.strategies = {&kRefusing};
  auto step =
      compile([&](Tensor x) { return sum(matmul(x, w.value())); }, {.mesh = Mesh::parse("refused2"), .plan = p});
  const uint32_t line = __LINE__ - 1;
  expect_has(placed_error_of([&] {
               step(ones({4, 4}));
             }),
             str_cat("refused: no products; at distributed/launch/errors_test.cc:", line));
}

TEST(MeshErrors, OneDeviceIsOneRank) {
  Parameter w(ones({4}), "w");
  auto step = weft::compile([&](Tensor x) { return sum(x * w.value()); });
  expect_has(error_of([&] { step.plan(); }), "plan: the function has not been captured yet");
  step(ones({2, 4}));
  const PlanReport p = step.plan();
  EXPECT_EQ(p.mesh().size(), 1);
  EXPECT_TRUE(p.collectives().empty());
  EXPECT_EQ(p.peak_bytes(), step.stats().planned_peak_bytes);
  EXPECT_EQ(error_of([&] { step.world(); }), "world: the step runs on one rank");
}

TEST(MeshErrors, ArgumentsAlone) {
  const auto refused = [](const char* mesh, const Plan& plan, const Shape& shape) {
    const TensorType type{.dtype = kInt32, .shape = shape};
    return error_of([&] { check_arguments(Mesh::parse(mesh), plan, {&type, 1}); });
  };
  EXPECT_EQ(refused("dp3", {}, {4, 16}),
            "mesh dp3: a batch of 4 (argument i32[4, 16]) does not divide over dp (3 ranks); the nearest batches that "
            "do are 3 and 6");
  EXPECT_EQ(refused("dp2,cp3", {}, {4, 16}),
            "mesh dp2,cp3: sequences of 16 (argument i32[4, 16]) do not divide over cp (3 ranks); the nearest lengths "
            "that do are 15 and 18");
  expect_has(refused("cp2", with_cp("ring", "headtail"), {4, 18}), "needs sequences that divide into 4 chunks");
  expect_has(refused("xy2", {}, {4, 16}),
             "mesh xy2: no strategy for dimension 'xy'; need dp, fsdp, ep, tp, cp, pp or replica");
  EXPECT_EQ(refused("dp2,fsdp2,tp3,ep2", {}, {8, 5}), "");
  EXPECT_EQ(refused("dp4,cp2", {}, {}), "");
}

TEST(MeshErrors, Rules) {
  expect_has(refused("tp2", {{"blocks.0.attn.qvk.weight", {{"tp", Shard(0)}}}}),
             "matches no parameter; the nearest name is 'blocks.0.attn.qkv.weight'");
  expect_has(refused("tp2", {{"blocks.*.attn.proj.weight", {{"tp", Shard(0)}}}}),
             "the nearest name is 'blocks.0.attn.");
  const std::string qkv = "blocks.*.attn.qkv.weight";
  for (int dim : {2, 100, -2})
    expect_has(refused("tp2", {{qkv, {{"tp", Shard(dim)}}}}),
               str_cat("shards dim ", dim, " of 'blocks.0.attn.qkv.weight' [96, 32]; need a dim from 0 to 1"));
  expect_has(refused("tp2", {{qkv, {{"pt", Shard(0)}}}}), "names mesh dimension 'pt'; there are tp");
  const std::string twice =
      "places 'blocks.0.attn.qkv.weight' over tp, and so does rule 'blocks.*.attn.qkv.weight'; need one rule for it";
  expect_has(refused("tp2", {{qkv, {{"tp", Shard(0)}}}, {"blocks.0.attn.qkv.w*", {{"tp", Shard(1)}}}}),
             "rule 'blocks.0.attn.qkv.w*' " + twice);
  expect_has(refused("tp2", {{qkv, {{"tp", Shard(0)}}}, {"*.qkv.weight", {{"tp", Replicate()}}}}), twice);
  expect_has(refused("tp2", {{qkv, {{"tp", Replicate()}}}, {"*.qkv.weight", {{"tp", Shard(0)}}}}), twice);
  expect_has(refused("tp2", {{qkv, {{"tp", Shard(0)}, {"tp", Shard(1)}}}}), twice);
  expect_has(refused("dp2,tp2,ep4(dp,tp)", {{qkv, {{"tp", Shard(0)}, {"ep", Shard(1)}}}}), "over ep, and so does rule");
  expect_has(refused("tp8", {{"blocks.*.attn.qkv.weight", {{"tp", Shard(1)}}}}, {.dim = 4}),
             "over tp8; need an extent of at least 8");
  EXPECT_EQ(refused("dp2,tp2", {{qkv, {{"tp", Shard(0)}, {"dp", Replicate()}}}}), "");
}

TEST(MeshErrors, ArgumentsOfAnyShape) {
  Parameter w(ones({4}));
  auto fn = [&](Tensor a, Tensor b) { return sum(a * w.value()) + sum(b); };
  auto step = compile(fn, {.mesh = Mesh::parse("dp2")});
  EXPECT_EQ(step(ones({4, 4}), ones({})).item<double>(), 17);
  EXPECT_EQ(step(ones({4, 4}), ones({6, 4})).item<double>(), 40);  // each argument is split by itself
  EXPECT_EQ(step(ones({0, 4}), ones({2, 4})).item<double>(), 8);
  EXPECT_EQ(step(ones({4, 4}), ones({3, 4})).item<double>(), 28);  // or whole, if it is not the batch
  expect_has(error_of([&] {
               step(ones({3, 4}), ones({4, 4}));
             }),
             "a batch of 3 (argument f32[3, 4]) does not divide over dp (2 ranks)");
  EXPECT_EQ(step(ones({4, 4}), ones({})).item<double>(), 17);
}

// A trained table [8, 3] whose rows are looked up. An index out of range is a kernel's error on one rank.
struct Lookup {
  Parameter table{Tensor::from_vector<float>(
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}, {8, 3})};
  bool guarded = false;
  Tensor operator()(const Tensor& index, const Tensor& scale) {
    const Tensor loss = sum(embedding(index, table) * unsqueeze(scale, 1));
    if (guarded) commit_if(eq(loss - loss, 0.0));
    table.set(table.value() - 0.5 * grad(loss, std::vector<Parameter>{table})[0]);
    return loss;
  }
};
Tensor rows(std::vector<int64_t> v) { return Tensor::from_vector<int64_t>(v, {static_cast<int64_t>(v.size())}); }
std::vector<float> bits(const Parameter& p) { return p.value().to_vector<float>(); }

TEST(MeshSteps, OneRankThatFailsFailsTheStep) {
  Lookup alone, many;
  auto one = weft::compile([&](Tensor i, Tensor s) { return alone(i, s); });
  auto step = compile([&](Tensor i, Tensor s) { return many(i, s); }, {.mesh = Mesh::parse("dp4")});
  const Tensor good = rows({0, 3, 3, 7}), scale = ones({4});
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(step(good, scale).item<double>(), one(good, scale).item<double>());
    EXPECT_EQ(bits(many.table), bits(alone.table));
    // Rank 2 fails before any cell is written: the others end, nothing changes, and the world stays usable.
    const std::string e = error_of([&] { step(rows({0, 3, 8, 7}), scale); });
    expect_has(e, "8");
    EXPECT_EQ(bits(many.table), bits(alone.table));
  }
}

TEST(MeshSteps, AStepThatFailsChangesNothing) {
  Parameter w(ones({4}));
  auto step = compile(
      [&](Tensor index) {
        w.set(w.value() + 1.0);
        return index_select(w.value(), 0, index);
      },
      {.mesh = Mesh::parse("dp2")});
  const Tensor good = rows({0, 1}), bad = rows({0, 9});
  EXPECT_EQ(step(good).to_vector<float>(), std::vector<float>(2, 2));
  EXPECT_NE(error_of([&] { step(bad); }), "");
  EXPECT_EQ(step(good).to_vector<float>(), std::vector<float>(2, 3));
}

// If one rank's rows contain a NaN, no rank commits.
TEST(MeshSteps, NanOnOneRankSkipsTheStepOnAll) {
  for (const char* mesh : {"dp4", "fsdp4", "dp2,fsdp2"}) {
    Lookup alone, many;
    alone.guarded = many.guarded = true;
    auto one = weft::compile([&](Tensor i, Tensor s) { return alone(i, s); });
    auto step = compile([&](Tensor i, Tensor s) { return many(i, s); }, {.mesh = Mesh::parse(mesh)});
    const Tensor index = rows({0, 3, 3, 7});
    Tensor nan = Tensor::from_vector<float>({1, 1, std::numeric_limits<float>::quiet_NaN(), 1}, {4});
    step(index, ones({4})), one(index, ones({4}));
    const std::vector<float> before = bits(many.table);
    EXPECT_EQ(before, bits(alone.table)) << mesh;
    EXPECT_TRUE(std::isnan(step(index, nan).item<double>()));
    EXPECT_EQ(bits(many.table), before) << mesh;
    step(index, ones({4})), one(index, ones({4}));
    EXPECT_EQ(bits(many.table), bits(alone.table)) << mesh;
  }
}

// Between steps, cells are read, set, and used by a step on another mesh.
TEST(MeshSteps, CellsBelongToNoMesh) {
  Lookup alone, many;
  auto one = weft::compile([&](Tensor i, Tensor s) { return alone(i, s); });
  auto both = [&](Tensor i, Tensor s) { return many(i, s); };
  auto on_four = compile(both, {.mesh = Mesh::parse("fsdp4")});
  auto on_two = compile(both, {.mesh = Mesh::parse("fsdp2,tp2")});
  auto on_one = weft::compile(both);
  const Tensor index = rows({0, 3, 3, 7}), scale = ones({4});
  auto same = [&] { EXPECT_EQ(bits(many.table), bits(alone.table)); };
  for (int k = 0; k < 2; ++k) {
    on_four(index, scale), one(index, scale), same();
    on_two(index, scale), one(index, scale);  // not read in between
    on_four(index, scale), one(index, scale), same();
    on_one(index, scale), one(index, scale);
    on_two(index, scale), one(index, scale), same();
    const Tensor fresh = full({8, 3}, 1.0 + k);
    many.table.set(fresh), alone.table.set(fresh);
    on_two(index, scale), one(index, scale), same();
  }
}

}  // namespace
}  // namespace weft::dist
