// Bucketed and overlapped collectives give the bits of blocking ones, on random graphs and in training steps. Every
// started collective is waited for, all ranks have the same order, and memory stays within its budget.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "distributed/launch/compile.h"
#include "distributed/launch/testing/gpt_training.h"
#include "distributed/launch/world.h"
#include "distributed/overlap/arrange.h"
#include "distributed/overlap/dependencies.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/interpreter.h"
#include "framework/ir/rewrite.h"
#include "ops/core/collectives/collective.h"

namespace weft::dist {
namespace {

Tensor values(int rank, const Shape& shape, int salt) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i)
    v.push_back(std::sin(static_cast<double>(i * 37 + rank * 101 + salt * 53)));
  return Tensor::from_vector<double>(v, shape);
}

// A random program for one rank of "a2,b2" on inputs [4 k, 4 k]. Every unused value is a result.
struct Random {
  Ref<Graph> graph;
  std::vector<Shape> inputs;
};
Random random_graph(uint32_t seed, int64_t k) {
  std::mt19937 rng(seed);
  auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
  Random r;
  Capture capture(Capture::kStep);
  NoGrad guard;
  std::vector<Tensor> all;
  std::set<int> unused;
  const int inputs = 6;
  for (int i = 0; i < inputs; ++i) {
    r.inputs.push_back({4 * k, 4 * k});
    all.push_back(capture.add_input({kFloat64, Device::cpu(), r.inputs.back()}));
  }
  for (int i = 0; i < 60; ++i) {
    // A third of all operands are inputs: their collectives can start early.
    const int a = pick(3) == 0 ? pick(inputs) : pick(static_cast<int>(all.size())),
              b = pick(static_cast<int>(all.size()));
    const Tensor &x = all[static_cast<size_t>(a)], &y = all[static_cast<size_t>(b)];
    const std::string axes = std::vector<std::string>{"a", "b", "a,b"}[static_cast<size_t>(pick(3))];
    const int64_t parts = axes == "a,b" ? 4 : 2, d = pick(2);
    Tensor z;
    switch (pick(8)) {
      case 0:
        z = x.shape() == y.shape() ? x + y : tanh(x);
        break;
      case 1:
        z = matmul(x, transpose(x, 0, 1));
        break;
      case 2:
        z = dispatch(all_reduce_op, {&x}, {{"axes", axes}, {"op", std::string(pick(3) ? "sum" : "max")}});
        break;
      case 3:
      case 4:
        if (x.shape()[static_cast<int>(d)] > 16 * k) continue;
        z = dispatch(all_gather_op, {&x}, {{"axes", axes}, {"dim", d}, {"parts", parts}});
        break;
      case 5:
      case 6:
        if (x.shape()[static_cast<int>(d)] % (4 * k * parts)) continue;
        z = dispatch(reduce_scatter_op, {&x},
                     {{"axes", axes}, {"dim", d}, {"parts", parts}, {"op", std::string("sum")}});
        break;
      default:
        z = pick(2) ? transpose(x, 0, 1) : dispatch(permute_ranks_op, {&x}, {{"axes", axes}, {"shift", int64_t{1}}});
    }
    if (z.numel() > 4096 * k * k) continue;
    unused.erase(a);
    unused.insert(static_cast<int>(all.size()));
    all.push_back(z);
  }
  std::vector<Tensor> out;
  for (int i : unused) out.push_back(all[static_cast<size_t>(i)]);
  r.graph = capture.finish(out);
  return r;
}

using Bits = std::vector<std::vector<double>>;

Bits run(World& world, const Graph& g, const std::vector<Shape>& shapes) {
  std::vector<Bits> all(static_cast<size_t>(world.size()));
  world.run([&](int r) {
    NoGrad guard;
    std::vector<Tensor> in;
    for (size_t i = 0; i < shapes.size(); ++i) in.push_back(values(r, shapes[i], static_cast<int>(i)));
    for (const Tensor& t : interpret(g, in)) all[static_cast<size_t>(r)].push_back(t.to_vector<double>());
  });
  Bits flat;
  for (Bits& b : all) flat.insert(flat.end(), b.begin(), b.end());
  return flat;
}

// Every start is followed by one wait for it, and nothing else reads its result.
void check_starts(const Graph& g) {
  std::map<int64_t, int32_t> begun;
  const auto readers = users(g);
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.op == &collective_wait_op) {
      ASSERT_TRUE(begun.contains(n.attrs.i("site"))) << "wait without a start";
      EXPECT_EQ(begun[n.attrs.i("site")], n.inputs[0].node);
      EXPECT_EQ(g.node(n.inputs[0]).inputs[0], n.inputs[1]);
      begun.erase(n.attrs.i("site"));
    } else if (n.op->is(kCollective) && n.op->is(kOrdered) && !communicates(n)) {
      EXPECT_TRUE(begun.emplace(n.attrs.i("site"), id).second) << "two under way at one site";
      ASSERT_EQ(readers[static_cast<size_t>(id)].size(), 1u);
      EXPECT_EQ(g.node(readers[static_cast<size_t>(id)][0]).op, &collective_wait_op);
    }
  }
  EXPECT_TRUE(begun.empty()) << "a start without a wait";
}

TEST(Communication, RandomGraphsKeepTheirBits) {
  const Mesh mesh = Mesh::parse("a2,b2");
  World world(mesh, {.timeout = std::chrono::seconds(60)});
  int64_t buckets = 0, earlier = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const Random small = random_graph(seed, 1), large = random_graph(seed, 2);
    const Ref<Graph> plain = with_sites(*small.graph), other = with_sites(*large.graph);
    const Bits want = run(world, *plain, small.inputs);
    for (const auto& [bucket, overlap] : {std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
      CommunicationOptions options{.bucket = bucket, .overlap = overlap};
      // Links are fast, or slow, so that there is communication to hide.
      if (seed % 2) options.machine.links.inner_hop = 1e-6, options.machine.links.inner_bus = 1e8;
      std::vector<Ref<Graph>> classes{plain, other};
      const CommunicationReport report = arrange_communication(mesh, classes, options);
      for (const Ref<Graph>& g : classes) {
        verify(*g);
        check_starts(*g);
      }
      EXPECT_EQ(run(world, *classes[0], small.inputs), want)
          << "seed " << seed << (bucket ? " bucket" : "") << (overlap ? " overlap" : "");
      EXPECT_LE(report.schedule.exposed, report.plain.exposed * (1 + 1e-12));
      buckets += static_cast<int64_t>(report.buckets.size());
      earlier += report.schedule.exposed < report.plain.exposed;
    }
    EXPECT_EQ(run(world, *other, large.inputs).size(), want.size());
  }
  EXPECT_GT(buckets, 100);
  EXPECT_GT(earlier, 100);
}

TEST(Communication, SchedulesKeepToTheirMemory) {
  const Mesh mesh = Mesh::parse("a2,b2");
  Machine machine = machine_preset("cpu");
  machine.links.inner_hop = 1e-6, machine.links.inner_bus = 1e8;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const Ref<Graph> g = with_sites(*random_graph(seed, 2).graph);
    const OverlapSchedule free = schedule(*g, mesh, machine, {.memory_bytes = int64_t{1} << 40});
    double exposed = free.exposed;
    for (int64_t budget : {free.peak_before * 3 / 2, free.peak_before}) {
      const OverlapSchedule s = schedule(*g, mesh, machine, {.memory_bytes = budget});
      EXPECT_LE(s.peak, budget) << seed;
      EXPECT_EQ(s.peak_before, free.peak_before);
      exposed = std::max(exposed, s.exposed);
    }
    // If a rank waits for several transfers, the time counts for the transfer under way.
    double waits = 0;
    for (const HiddenCollective& h : free.hidden) {
      EXPECT_LE(h.exposed, h.seconds * (1 + 1e-9)) << seed;
      waits += h.exposed;
    }
    EXPECT_LE(waits, free.exposed * (1 + 1e-9)) << seed;
    EXPECT_LE(exposed, free.communication * (1 + 1e-12));
  }
}

// The graph has two products of one gathered operand, then a product whose sum is scattered. Small values keep all sums
// exact.
TEST(Communication, RingsGiveWhatProductsGive) {
  const Mesh mesh = Mesh::parse("dp2,tp4");
  World world(mesh, {.timeout = std::chrono::seconds(60)});
  auto exact = [](int rank, const Shape& shape, int salt) {
    std::vector<double> v;
    for (int64_t i = 0; i < shape.numel(); ++i)
      v.push_back(static_cast<double>((i * 37 + rank * 101 + salt * 53) % 17 - 8));
    return Tensor::from_vector<double>(v, shape);
  };
  const std::vector<Shape> shapes = {{2, 3, 8}, {6, 8}, {8, 6}, {5, 6}};
  Ref<Graph> g;
  {
    Capture capture(Capture::kStep);
    NoGrad guard;
    std::vector<Tensor> in;
    for (const Shape& s : shapes) in.push_back(capture.add_input({kFloat64, Device::cpu(), s}));
    const Tensor all =
        dispatch(all_gather_op, {&in[0]}, {{"axes", std::string("tp")}, {"dim", int64_t{1}}, {"parts", int64_t{4}}});
    const Tensor up = linear(all, in[1]), gate = matmul(all, in[2]);
    const Tensor y = linear(up * gate, in[3]);
    const Tensor own =
        dispatch(reduce_scatter_op, {&y},
                 {{"axes", std::string("tp")}, {"dim", int64_t{1}}, {"parts", int64_t{4}}, {"op", std::string("sum")}});
    const std::vector<Tensor> out = {own, gate};
    g = with_sites(*capture.finish(out));
  }
  auto results = [&](const Graph& graph) {
    std::vector<Bits> all(static_cast<size_t>(mesh.size()));
    world.run([&](int r) {
      NoGrad guard;
      std::vector<Tensor> in;
      for (size_t i = 0; i < shapes.size(); ++i) in.push_back(exact(r, shapes[i], static_cast<int>(i)));
      for (const Tensor& t : interpret(graph, in)) all[static_cast<size_t>(r)].push_back(t.to_vector<double>());
    });
    return all;
  };
  const auto want = results(*g);
  Machine apart = machine_preset("cpu");
  apart.shares_cores = false;
  EXPECT_EQ(choose_rings(*g, mesh, machine_preset("cpu"), AsyncTp::kAuto).size(), 0u);
  EXPECT_EQ(choose_rings(*g, mesh, machine_preset("cpu"), AsyncTp::kOff).size(), 0u);
  const std::vector<ProductRing> rings = choose_rings(*g, mesh, apart, AsyncTp::kOn);
  ASSERT_EQ(rings.size(), 2u);
  EXPECT_EQ(rings[0].dots.size(), 2u);
  EXPECT_FALSE(rings[1].gather);
  for (bool overlap : {false, true}) {
    std::vector<Ref<Graph>> classes{g};
    const CommunicationReport report =
        arrange_communication(mesh, classes, {.overlap = overlap, .async_tp = AsyncTp::kOn, .machine = apart});
    verify(*classes[0]);
    if (overlap) check_starts(*classes[0]);
    EXPECT_EQ(report.after, 6);
    EXPECT_EQ(report.ring_steps.size(), 6u);
    for (const auto& [step, replaced] : report.ring_steps)
      EXPECT_NE(std::find(report.rings.begin(), report.rings.end(), replaced), report.rings.end()) << step;
    EXPECT_EQ(results(*classes[0]), want);
  }
}

// `work` products, and then one with a gathered value whose shards were ready before them.
Ref<Graph> gathers(int64_t n, int work) {
  Capture capture(Capture::kStep);
  NoGrad guard;
  const Tensor in = capture.add_input({kFloat32, Device::cpu(), {n, n}});
  Tensor x = dispatch(all_reduce_op, {&in}, {{"axes", std::string("tp")}, {"op", std::string("sum")}});
  const Tensor own = tanh(x);
  for (int i = 0; i < work; ++i) x = matmul(x, in);
  const Tensor all =
      dispatch(all_gather_op, {&own}, {{"axes", std::string("tp")}, {"dim", int64_t{0}}, {"parts", int64_t{2}}});
  const std::vector<Tensor> out = {matmul(all, x)};
  return with_sites(*capture.finish(out));
}

// If all gathers started as early as possible, their results would need memory for a long time. If this memory did not
// fit, nothing would be hidden.
TEST(Communication, CollectivesStartOnlyAsEarlyAsHidesThem) {
  const Mesh mesh = Mesh::parse("tp2");
  const Machine& machine = machine_preset("cpu");
  const int work = 200;
  const Ref<Graph> g = gathers(512, work);
  const OverlapSchedule s = schedule(*g, mesh, machine);
  ASSERT_EQ(s.hidden.size(), 2u);
  EXPECT_EQ(s.hidden[1].exposed, 0);
  int before = 0;  // products before the start
  for (const ScheduleEvent& e : s.events) {
    if (e.kind == ScheduleEvent::kStart && g->node(e.node).op == &all_gather_op) break;
    before += g->node(e.node).op == &dot_op;
  }
  EXPECT_GT(before, work / 2);
  EXPECT_LT(before, work);
}

// If cores move the data, a ring hides nothing within a host, but hides the network between hosts.
TEST(Communication, RingsAreChosenWhereANetworkIsSlow) {
  const Mesh mesh = Mesh::parse("tp2");
  const Ref<Graph> g = gathers(2048, 1);
  Machine machine = machine_preset("cpu");
  std::vector<ProductRing> declined;
  EXPECT_TRUE(choose_rings(*g, mesh, machine, AsyncTp::kAuto, &declined).empty());
  ASSERT_EQ(declined.size(), 1u);
  EXPECT_GE(declined[0].ring_seconds, declined[0].plain_seconds);
  machine.links.node = 1;
  const std::vector<ProductRing> rings = choose_rings(*g, mesh, machine, AsyncTp::kAuto);
  ASSERT_EQ(rings.size(), 1u);
  EXPECT_LT(rings[0].ring_seconds, rings[0].plain_seconds);
  std::vector<Ref<Graph>> classes{g};
  const CommunicationReport report = arrange_communication(mesh, classes, {});
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_EQ(report.notes[0].rfind("async_tp auto: 0 of 1 rings; the best other (all_gather at ", 0), 0u)
      << report.notes[0];
}

struct Trained {
  std::vector<std::vector<double>> all;  // losses, norms and cells, bit for bit
  std::string report;
};

Trained train(const std::string& mesh, int64_t vocab, const CommunicationOptions& communication,
              DType dtype = kFloat32) {
  gpt::Config c = testing::small_gpt(vocab);
  c.dropout = 0.1;
  manual_seed(7);
  testing::GptTraining t(c, dtype);
  auto step =
      compile([&](Tensor tokens, Tensor targets) { return t(tokens, targets); },
              {.mesh = Mesh::parse(mesh), .communication = std::make_shared<CommunicationOptions>(communication)});
  Trained r;
  manual_seed(11);
  for (int i = 0; i < 3; ++i) {
    Tensor tokens = randint(0, vocab, {4, 16}, {.dtype = kInt32}),
           targets = randint(0, vocab, {4, 16}, {.dtype = kInt32});
    for (const Tensor& out : step(tokens, targets)) r.all.push_back(out.to(kFloat64).to_vector<double>());
  }
  r.report = step.report();
  for (auto& [name, cell] : t.named_cells()) r.all.push_back(cell.value().to(kFloat64).to_vector<double>());
  return r;
}

TEST(Communication, StepsKeepTheirBits) {
  for (const auto& [mesh, vocab] :
       {std::pair("fsdp2,tp2", 48), {"dp2,tp2", 48}, {"fsdp2,tp2", 50}, {"fsdp2,cp2", 48}}) {
    const Trained plain = train(mesh, vocab, {.bucket = false, .overlap = false});
    const Trained buckets = train(mesh, vocab, {.bucket = true, .overlap = false});
    const Trained both = train(mesh, vocab, {});
    EXPECT_EQ(buckets.all, plain.all) << mesh << " vocab " << vocab;
    EXPECT_EQ(both.all, plain.all) << mesh << " vocab " << vocab;
    EXPECT_NE(both.report.find(", after bucketing "), std::string::npos) << both.report;
  }
}

// A ring sums over ranks in another order: f64 agrees within 1e-9, as on meshes of other shapes.
TEST(Communication, StepsWithRingsTrainAlike) {
  const Trained plain = train("dp2,tp2", 48, {}, kFloat64),
                rings = train("dp2,tp2", 48, {.async_tp = AsyncTp::kOn}, kFloat64);
  EXPECT_NE(rings.report.find("in rings with their products"), std::string::npos) << rings.report;
  double scale_all = 0;
  for (const auto& v : plain.all)
    for (double x : v) scale_all = std::max(scale_all, std::abs(x));
  ASSERT_EQ(rings.all.size(), plain.all.size());
  for (size_t i = 0; i < plain.all.size(); ++i) {
    double scale = 1e-3 * scale_all, worst = 0;
    for (double x : plain.all[i]) scale = std::max(scale, std::abs(x));
    for (size_t k = 0; k < plain.all[i].size(); ++k)
      worst = std::max(worst, std::abs(plain.all[i][k] - rings.all[i][k]));
    EXPECT_LE(worst, 1e-9 * scale) << i;
  }
}

}  // namespace
}  // namespace weft::dist
