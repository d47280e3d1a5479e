// A step on a mesh commits on all ranks or on none, for any error at any place. Steps on equal meshes take turns. After
// a read of a sharded cell, the next step does not shard it again.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>

#include "distributed/launch/compile.h"
#include "distributed/launch/step.h"
#include "framework/base/testing/error_of.h"
#include "framework/dispatch/device/target.h"
#include "framework/dispatch/dispatch.h"
#include "models/gpt/model.h"
#include "weft.h"

namespace weft::dist {
namespace {

using testing::error_of;
using testing::expect_has;
using testing::placed_error_of;

enum class Fault { kNone, kError, kFailedNode, kBadAlloc, kStdException, kUnknown, kStops };
Fault fault = Fault::kNone;  // how the kernel of `trip` fails on rank 1; set between steps

void trip_kernel(const KernelCall& c) {
  for (int64_t i = 0; i < c.out[0].numel(); ++i) c.out[0].as<float>()[i] = c.in[0].as<float>()[i];
  if (fault == Fault::kNone || RankContext::require("trip").rank() != 1) return;
  if (fault == Fault::kStops) {  // waits until the other rank's failure aborts the collectives
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    EXPECT_TRUE(RankContext::require("trip").communicator("dp").start({})->wait(deadline));
    return;
  }
  static const Node node{};
  const Error error(Code::kOutOfRange, "trip: the kernel failed");
  if (fault == Fault::kBadAlloc) throw std::bad_alloc();
  if (fault == Fault::kStdException) throw std::runtime_error("trip: no weft::Error");
  if (fault == Fault::kUnknown) throw 7;
  if (fault == Fault::kFailedNode) throw FailedNode(error, node);
  throw error;
}

Tensor trip(const Tensor& x) {
  static const OpDef op = {.name = "trip",
                           .infer = [](const InferCall& c) { return Types{c.in[0]}; },
                           .dims = [](const Attrs&, std::span<const TensorType> in,
                                      std::span<const TensorType> out) { return DimMap::pointwise(in, out); },
                           .kernel = trip_kernel};
  return dispatch(op, {&x});
}

ShardedCell& shards_of(const Parameter& p) {
  auto* s = dynamic_cast<ShardedCell*>(p.cell().remote.get());
  if (!s) throw std::runtime_error("the cell has no shards");
  return *s;
}

// Two cells; every step adds 1 to all elements of both.
struct Cells {
  Parameter w{full({8}, 0.0), "w"}, v{full({8}, 0.0), "v"};
  bool late = false;  // the kernel that may fail runs after the first write, else before all writes

  Tensor operator()(const Tensor& x) {
    Tensor read = w.value();
    if (late) {
      read = read + 1.0;
      w.set(read);
    }
    const Tensor t = trip(read);
    if (!late) w.set(t + 1.0);
    v.set(v.value() + (t - read) + 1.0);
    return x * t;
  }
  void set(double value) {
    w.set(full({8}, value));
    v.set(full({8}, value));
  }
};

const char* text_of(Fault kind) {
  switch (kind) {
    case Fault::kBadAlloc:
      return "rank 1: std::bad_alloc";
    case Fault::kStdException:
      return "rank 1: trip: no weft::Error";
    case Fault::kUnknown:
      return "rank 1: an exception of unknown type";
    default:
      return "rank 1: trip: the kernel failed";
  }
}

void expect_all(const Cells& c, float value, const std::string& what) {
  for (const Parameter* p : {&c.w, &c.v}) {
    const std::vector<Ref<Cell>>& shards = shards_of(*p).shards;
    for (size_t r = 0; r < shards.size(); ++r)
      for (float x : shards[r]->value.to_vector<float>())
        ASSERT_EQ(x, value) << what << ": " << p->name() << " on rank " << r;
    for (float x : p->value().to_vector<float>()) ASSERT_EQ(x, value) << what << ": " << p->name();
  }
}

void check(const std::string& mesh, const weft::CompileOptions& options, Fault kind, bool late, bool held) {
  const std::string what =
      str_cat(mesh, ", fault ", static_cast<int>(kind), late ? ", late" : ", early", held ? ", held" : "");
  Cells c;
  c.late = late;
  auto step = weft::compile([&](Tensor x) { return c(x); }, options);
  float done = 0;
  for (int k = 0; k < 6; ++k) {
    fault = Fault::kNone;
    step(ones({4, 8}));
    expect_all(c, ++done, what);
    std::vector<Tensor> holders;  // rank 0 must then write to fresh storage
    if (held)
      for (const Parameter* p : {&c.w, &c.v}) holders.push_back(shards_of(*p).shards[0]->value);
    fault = kind;
    expect_has(error_of([&] { step(ones({4, 8})); }), text_of(kind));
    fault = Fault::kNone;
    if (!late) {  // the cells are as if the step had not run
      expect_all(c, done, what + ", after the fault");
      continue;
    }
    // Rank 1 has overwritten w but not v. The others run to the end, but write neither in place while the values are
    // held.
    const bool v_whole = held && shards_of(c.v).shards.size() == 2;
    expect_has(error_of([&] { static_cast<void>(c.w.value()); }), "'w' was torn by a step that failed half-way");
    if (v_whole) {
      ASSERT_EQ(c.v.value().to_vector<float>(), std::vector<float>(8, done)) << what;
    } else {
      expect_has(error_of([&] { static_cast<void>(c.v.value()); }), "'v' was torn by a step that failed half-way");
    }
    expect_has(error_of([&] { step(ones({4, 8})); }), "was torn by a step that failed half-way");
    c.set(done);
  }
}

TEST(MeshCommit, OnAllRanksOrOnNone) {
  const Plan over_tp{{"w", {{"tp", Shard(0)}}}, {"v", {{"tp", Shard(0)}}}};
  for (const char* mesh : {"dp2", "fsdp2", "tp2", "dp2,tp2"})
    for (const char* checks : {"", "verify", "verify_numerics"}) {
      const bool tp = Mesh::parse(mesh).find("tp");
      CompileOptions how{.mesh = Mesh::parse(mesh), .plan = tp ? over_tp : Plan{}};
      how.verify_numerics = std::string(checks) == "verify_numerics";
      CompileOptions options = internal::for_mesh(how);
      options.verify = std::string(checks) == "verify";
      for (Fault kind : {Fault::kError, Fault::kFailedNode, Fault::kBadAlloc, Fault::kStdException, Fault::kUnknown})
        for (bool late : {false, true})
          for (bool held : {false, true}) {
            check(mesh, options, kind, late, held);
            if (HasFatalFailure()) return;
          }
    }
}

// An index is bad, before or after the cells are written: a cell that no rank has overwritten keeps its value.
TEST(MeshCommit, OfABadIndexOnAllRanksOrOnNone) {
  for (const char* mesh : {"dp2", "fsdp2", "tp2", "dp2,tp2"})
    for (bool late : {false, true})
      for (bool verify : {false, true}) {
        SCOPED_TRACE(str_cat(mesh, late ? ", late" : "", verify ? ", verify" : ""));
        const bool tp = Mesh::parse(mesh).find("tp");
        Plan over_tp{{"w", {{"tp", Shard(0)}}}, {"v", {{"tp", Shard(0)}}}};
        Parameter w(full({8}, 0.0), "w"), v(full({8}, 0.0), "v");
        auto step = dist::compile(
            [&](Tensor index) {
              if (late) w.set(w.value() + 1.0);
              const Tensor at = late ? index + (w.value().to(kInt64).sum() - 8 * w.value().to(kInt64)[0]) : index;
              const Tensor y = index_select(w.value(), 0, at);
              if (!late) w.set(w.value() + 1.0);
              v.set(v.value() + 1.0 + 0.0 * sum(y));
              return y;
            },
            {.mesh = Mesh::parse(mesh), .plan = tp ? over_tp : Plan{}, .verify = verify});
        auto rows = [](std::vector<int64_t> r) { return Tensor::from_vector<int64_t>(r, {4}); };
        float done = 0;
        for (const std::vector<int64_t>& bad : std::vector<std::vector<int64_t>>{{0, 1, 2, 9}, {-1, 1, 2, 3}}) {
          step(rows({0, 3, 5, 7}));
          ++done;
          expect_has(error_of([&] { step(rows(bad)); }), " is out of range; need 0 to 7");
          for (Parameter* p : {&w, &v}) {
            if (!error_of([&] { static_cast<void>(p->value()); }).empty()) {
              EXPECT_TRUE(late);
              p->set(full({8}, done));
            }
            EXPECT_EQ(p->value().to_vector<float>(), std::vector<float>(8, done));
          }
        }
        step(rows({0, 3, 5, 7}));
        for (const Parameter* p : {&w, &v}) EXPECT_EQ(p->value().to_vector<float>(), std::vector<float>(8, done + 1));
      }
}

// The forward pass writes a buffer, and an index is bad on one rank. All writes follow the last op that can fail, and
// the ranks agree before them.
struct Counted : nn::Module {
  nn::Embedding table{8, 4};
  nn::Linear up{4, 8}, down{8, 1};
  Buffer seen{zeros({4}), "seen"};
  Counted() {
    register_module("table", table);
    register_module("up", up);
    register_module("down", down);
    register_buffer("seen", seen);
  }
  Tensor operator()(const Tensor& index) const {
    seen.set(seen.value() + 1.0);
    return mean(down(gelu(up(table(index) + seen.value()))));
  }
};

TEST(MeshCommit, ABadIndexOnOneRankTearsNothing) {
  const Plan over_tp{{"up.weight", {{"tp", Shard(0)}}}, {"down.weight", {{"tp", Shard(1)}}}};
  for (const char* mesh : {"dp2", "fsdp2", "dp2,tp2"})
    for (bool verify : {false, true}) {
      SCOPED_TRACE(str_cat(mesh, verify ? ", verify" : ""));
      const Counted model;
      optim::AdamW opt(model.parameters());
      auto step = weft::compile(
          [&](Tensor index) {
            const Tensor loss = model(index);
            opt.minimize(loss);
            return loss;
          },
          internal::for_mesh(
              {.mesh = Mesh::parse(mesh), .plan = Mesh::parse(mesh).find("tp") ? over_tp : Plan{}, .verify = verify}));
      auto rows = [](std::vector<int64_t> r) { return Tensor::from_vector<int64_t>(r, {4}); };
      const Tensor good = rows({0, 3, 5, 7}), bad = rows({0, 1, 2, 9});
      step(good);
      nn::StateDict before = model.state_dict();
      const nn::StateDict moments = opt.state_dict();
      const std::string e = placed_error_of([&] { step(bad); });
      expect_has(e, "index_select: index 9 at position 3 is out of range; need 0 to 7; at ");
      EXPECT_EQ(e.find("torn"), e.npos) << e;
      const nn::StateDict rest = model.state_dict();
      EXPECT_EQ(rest.size(), before.size());
      for (const auto& [name, value] : rest)
        EXPECT_EQ(value.to_vector<float>(), before.at(name).to_vector<float>()) << name;
      for (const auto& [name, value] : opt.state_dict())
        EXPECT_EQ(value.to(kFloat32).to_vector<float>(), moments.at(name).to(kFloat32).to_vector<float>()) << name;
      step(good);
      EXPECT_EQ(model.seen.value().to_vector<float>(), std::vector<float>(4, 2));
    }
}

// If 4 heads are split over 8 ranks, every other rank has an empty part of the only written cell. All ranks agree.
TEST(MeshCommit, RanksWithEmptyPartsAgreeToo) {
  gpt::Model model({.vocab = 16, .context = 8, .layers = 1, .heads = 4, .dim = 32, .ffn = 64});
  Parameter qkv;
  for (const auto& [name, p] : model.named_parameters())
    if (name == "blocks.0.attn.qkv.weight") qkv = p;
  auto step = compile(
      [&](Tensor tokens) {
        const Tensor g = grad(model.loss(tokens, tokens).loss, std::vector<Parameter>{qkv})[0];
        qkv.set(qkv.value() - 0.5 * g);
        return trip(sum(qkv.value()));
      },
      {.mesh = Mesh::parse("tp8")});
  const Tensor x = zeros({2, 8}, {.dtype = kInt32});
  step(x);
  const std::vector<float> before = qkv.value().to_vector<float>();
  fault = Fault::kError;
  expect_has(error_of([&] { step(x); }), "rank 1: trip: the kernel failed");
  fault = Fault::kNone;
  std::vector<float> after;
  const std::string torn = error_of([&] { after = qkv.value().to_vector<float>(); });
  if (torn.empty()) {
    EXPECT_EQ(after, before);
  } else {
    expect_has(torn, "was torn by a step that failed half-way");
  }
}

// The generator's state is a cell that the step writes.
TEST(MeshCommit, ATornGeneratorNeedsASeed) {
  const std::string need =
      "cell 'rng.step' was torn by a step that failed half-way; load a checkpoint or call "
      "manual_seed first";
  Cells c;
  c.late = true;
  auto step = compile([&](Tensor x) { return c(x + rand({4, 8})); }, {.mesh = Mesh::parse("dp2")});
  manual_seed(3);
  const Tensor x = ones({4, 8});
  const std::vector<float> first = step(x).to_vector<float>();
  fault = Fault::kError;
  EXPECT_NE(error_of([&] { step(x); }), "");
  fault = Fault::kNone;
  c.set(0);
  EXPECT_EQ(error_of([&] { step(x); }), need);
  expect_has(error_of([&] { rand({2}); }), need);
  expect_has(error_of([&] { advance_random_step(); }), need);
  manual_seed(3);
  EXPECT_EQ(step(x).to_vector<float>(), first);
  EXPECT_EQ(error_of([&] { rand({2}); }), "");
}

// Two threads run steps on equal meshes: the steps take turns, each with its own results.
TEST(MeshCommit, StepsOfTwoThreadsTakeTurns) {
  const auto train = [](double by, std::vector<float>& out) {
    Parameter w(full({8}, 0.0), "w");
    auto step = compile(
        [&](Tensor x) {
          w.set(w.value() + sum(x) / 4.0);
          return sum(x * w.value());
        },
        {.mesh = Mesh::parse("dp2,tp2"), .plan = {{"w", {{"tp", Shard(0)}}}}});
    const Tensor x = full({4, 8}, by);
    for (int k = 0; k < 50; ++k) out.push_back(step(x).item<float>());
  };
  std::vector<float> alone[2], both[2];
  for (int i = 0; i < 2; ++i) train(i + 1, alone[i]);
  std::string errors[2];
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back([&, i] { errors[i] = error_of([&] { train(i + 1, both[i]); }); });
  for (std::thread& t : threads) t.join();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(errors[i], "");
    EXPECT_EQ(both[i], alone[i]);
  }
}

TEST(MeshCommit, AfterTheTimeoutTheMissingRankIsNamed) {
  Cells c;
  auto step = compile([&](Tensor x) { return c(x); }, {.mesh = Mesh::parse("dp2"), .timeout = 0.5});
  const Tensor x = ones({4, 8});
  step(x);
  for (int k = 0; k < 2; ++k) {
    fault = Fault::kStops;
    expect_has(error_of([&] { step(x); }), "over world: the deadline has passed; missing: rank 1 (");
    fault = Fault::kNone;
    expect_all(c, static_cast<float>(k + 1), "after the timeout");
    compile([&](Tensor y) { return c(y); },
            {.mesh = Mesh::parse("dp2")})(x);  // a step without a timeout keeps the default
    EXPECT_EQ(step.world().rank(0).timeout, std::chrono::seconds(kDefaultTimeout));
  }
}

TEST(MeshCommit, TimeoutsAreSecondsAboveZero) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (double bad : {0.0, -1.0, nan, inf, 1e10})
    EXPECT_EQ(error_of([&] { compile([](Tensor x) { return x; }, {.mesh = Mesh::parse("dp2"), .timeout = bad}); }),
              str_cat("compile: timeout is ", bad, " seconds; need more than 0 and at most 1e+09"));
}

TEST(MeshCells, AReadIsACopyAndOnlySetShardsAgain) {
  Parameter w(full({8}, 0.0), "w");
  Buffer frozen(full({8}, 2.0), "frozen");
  auto add = [&](Tensor x) {
    w.set(w.value() + 1.0);
    return x + w.value() * frozen.value();
  };
  auto step = compile(add, {.mesh = Mesh::parse("fsdp2")});
  auto read = compile([&](Tensor x) { return x + w.value(); }, {.mesh = Mesh::parse("fsdp2")});
  const Tensor x = zeros({4, 8});
  step(x);
  ShardedCell& cell = shards_of(w);
  auto counts = [&](int64_t scatters, int64_t gathers) {
    EXPECT_EQ(&shards_of(w), &cell);
    EXPECT_EQ(cell.moved.scatters, scatters);
    EXPECT_EQ(cell.moved.gathers, gathers);
    EXPECT_EQ(cell.moved.bytes, 32 * (scatters + gathers));
  };
  counts(1, 0);
  for (int k = 1; k < 4; ++k) {  // read, step, read
    EXPECT_EQ(w.value().to_vector<float>(), std::vector<float>(8, static_cast<float>(k)));
    EXPECT_EQ(w.value().to_vector<float>(), std::vector<float>(8, static_cast<float>(k)));
    EXPECT_EQ(frozen.value().to_vector<float>(), std::vector<float>(8, 2));
    counts(1, k);
    read(x);
    counts(1, k);
    const Tensor before = w.value();
    step(x);
    counts(1, k);
    EXPECT_EQ(before.to_vector<float>(), std::vector<float>(8, static_cast<float>(k)));
  }
  w.set(full({8}, 10.0));
  EXPECT_EQ(w.value().to_vector<float>(), std::vector<float>(8, 10));
  counts(1, 3);
  read(x);
  step(x);
  counts(2, 3);
  EXPECT_EQ(w.value().to_vector<float>(), std::vector<float>(8, 11));
  // A step on one device gives the cell a newer value than the shards have.
  weft::compile(add)(x);
  EXPECT_EQ(step(x).to_vector<float>(), std::vector<float>(32, 26));
  counts(3, 4);
}

// Each process writes the bytes of its own ranks, so the processes compare where the ranks are.
TEST(MeshCells, ThePlacementToSaveHasThePlacesOfTheRanks) {
  const auto saved = [](const std::vector<int>& place) {
    const Parameter p(full({8}, 0.0), "p");
    Spec rest;
    rest.dims.push_back(one_segment(8, {0}));
    auto shards = make_ref<ShardedCell>(
        ShardedCell::ShardLayout{.mesh = Mesh::parse("dp2"), .place = place, .rest = rest}, p.type());
    shards->scatter(p.value());
    weft::internal::set_remote(p.cell(), shards);
    return shards->own_parts(p.cell(), 0, false).value();
  };
  const auto a = saved({0, 1}), same = saved({0, 1}), b = saved({1, 0});
  EXPECT_EQ(a.parts.size(), 2u);
  EXPECT_EQ(a.placement, same.placement);
  EXPECT_NE(a.placement, b.placement);
}

}  // namespace
}  // namespace weft::dist
