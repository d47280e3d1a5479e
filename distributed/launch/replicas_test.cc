// Steps on live replicas, each with a world of its own. Without faults they have the bits of the same mesh as ranks of
// one job. A sum that fails, at any place, changes no cell. A step in doubt is decided by the view.
#include <gtest/gtest.h>

#include <thread>

#include "distributed/launch/compile.h"
#include "distributed/launch/sharded_cell.h"
#include "distributed/launch/testing/replica_group.h"
#include "distributed/launch/world.h"
#include "framework/base/switches.h"
#include "framework/base/testing/error_of.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/moe/config.h"
#include "weft.h"

namespace weft::dist {
namespace {

using testing::error_of;
using testing::expect_has;
using testing::ReplicaFaults;
using testing::ReplicaGroup;
using testing::TestReplica;

struct Setting {
  std::string inner;
  bool experts = false;
  int64_t microbatches = 1;
  bool verify = false;  // verify_numerics
  bool clip = true;
  int zero = -1;
};

using Values = std::vector<std::pair<std::string, Tensor>>;

// A model with its optimiser, and its step for any number of replicas.
class Training {
 public:
  explicit Training(const Setting& s) : s_(s) {
    set_switch("WEFT_CXX", "none");  // interpreted: faster for so little data
    manual_seed(7);
    const nn::ModelFamily& family = s.experts ? moe::family() : gpt::family();
    nn::ConfigMap config = family.preset(family.default_preset);
    const nn::ConfigMap small{{"vocab", "48"}, {"context", "8"}, {"layers", "2"}, {"heads", "4"}, {"dim", "32"}};
    const nn::ConfigMap plain{{"ffn", "64"}, {"dropout", "0"}};
    const nn::ConfigMap mixture{
        {"kv_heads", "2"}, {"ffn", "32"}, {"experts", "4"}, {"bias_rate", "0.01"}, {"aux_loss", "0.1"}};
    for (const nn::ConfigMap* changes : {&small, s.experts ? &mixture : &plain})
      for (const auto& [field, text] : *changes) config[field] = text;
    model_ = family.make(config);
    model_->train();
    opt_.emplace(optim::decay_groups(model_->parameters(), 0.1), optim::AdamWOptions{.lr = 1e-2});
  }

  // "": one device.
  std::vector<Tensor> step(const std::string& mesh, int64_t number, int64_t parts) {
    auto& compiled = steps_[mesh];
    if (!compiled) {
      CompileOptions how{.verify_numerics = s_.verify};
      if (!mesh.empty()) how.mesh = Mesh::parse(mesh);
      how.plan.zero = s_.zero;
      const auto fn = [this](Tensor x, Tensor y) { return computed(x, y); };
      if (mesh.empty())
        compiled = [step = weft::compile(fn, how)](const Tensor& x, const Tensor& y) mutable { return step(x, y); };
      else
        compiled = [step = dist::compile(fn, how)](const Tensor& x, const Tensor& y) mutable { return step(x, y); };
    }
    // Each part of the batch has the same rows, whatever their number is.
    std::vector<int32_t> x, y;
    const int64_t n = parts * s_.microbatches * 2 * 8;
    for (int64_t i = 0; i < n; ++i) {
      x.push_back(static_cast<int32_t>((i * 7919 + number * 104729 + 17) % 1009 % 48));
      y.push_back(static_cast<int32_t>((i * 31 + number * 7 + 5) % 997 % 48));
    }
    const Shape shape{n / 8, 8};
    return compiled(Tensor::from_vector<int32_t>(x, shape), Tensor::from_vector<int32_t>(y, shape));
  }

  Values values() const {
    Values all;
    for (auto& [name, cell] : model_->named_cells()) all.emplace_back(name, cell.value());
    for (auto& [name, cell] : opt_->named_cells()) all.emplace_back(name, cell.value());
    return all;
  }
  int64_t moved() const {
    int64_t n = 0;
    for (auto& [name, handle] : model_->named_cells())
      if (auto* sharded = dynamic_cast<ShardedCell*>(handle.cell().remote.get())) n += sharded->moved.scatters;
    return n;
  }

 private:
  std::vector<Tensor> computed(const Tensor& x, const Tensor& y) {
    if (s_.microbatches == 1) {
      const nn::LossOut out = model_->loss(x, y);
      return update(out.loss, grad(out.loss, opt_->parameters()), out.expert_counts);
    }
    auto [sum, grads] = accumulate(s_.microbatches, std::pair{x, y}, [&](const Tensor& a, const Tensor& b) {
      nn::LossOut out = model_->loss(a, b);
      Gradients g = grad(out.loss, opt_->parameters());
      for (Tensor* t : {&out.loss, &out.ce, &out.aux, &out.expert_load, &out.dropped}) *t = t->detach();
      return std::pair{std::move(out), std::move(g)};
    });
    return update(sum.loss, grads, sum.expert_counts);
  }
  std::vector<Tensor> update(const Tensor& loss, const Gradients& grads, const Tensor& counts) {
    if (!s_.clip) {
      opt_->step(grads);
      return {loss};
    }
    auto [g, norm] = optim::clip_grad_norm(grads, 1.0);
    opt_->step(g);
    model_->update_balance(counts);
    return {loss, norm};
  }

  const Setting s_;
  std::unique_ptr<nn::LanguageModel> model_;
  std::optional<optim::AdamW> opt_;
  std::map<std::string, std::function<std::vector<Tensor>(const Tensor&, const Tensor&)>> steps_;
};

std::string mesh_of(int replicas, const std::string& inner) {
  return str_cat("replica", replicas, inner.empty() ? "" : ",", inner);
}

void expect_same(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  int differ = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const auto same = testing::same_bits(got[i].second, want[i].second);
    if (!same && ++differ <= 3) ADD_FAILURE() << what << ", " << want[i].first << ": " << same.message();
  }
  EXPECT_EQ(differ, 0) << what;
}

// Replicas of a setting, each with a thread.
class Replicas {
 public:
  Replicas(const Setting& s, int count) : s_(s), inner_(Mesh::parse(s.inner).size()) {
    for (int p = 0; p < count; ++p) {
      trainings.push_back(std::make_unique<Training>(s));
      live_.push_back(std::make_unique<TestReplica>());
    }
    for (int p = 0; p < count; ++p) members_.push_back(p);
  }
  /// Makes a step with all members. Returns the errors by member.
  std::vector<std::string> step(int64_t number, const ReplicaFaults& faults = {}) {
    view = std::make_shared<ReplicaGroup>(count(), inner_, faults);
    std::vector<std::string> errors(members_.size());
    results.assign(members_.size(), {});
    std::vector<std::thread> threads;
    for (int p = 0; p < count(); ++p)
      threads.emplace_back([&, p] {
        TestReplica& mine = *live_[members_[p]];
        mine.enter(view, p);
        ScopedReplicas live(mine);
        try {
          results[p] = trainings[members_[p]]->step(mesh_of(count(), s_.inner), number, count());
        } catch (const Uncommitted& e) {
          errors[p] = "uncommitted";
        } catch (const Error& e) {
          errors[p] = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
    return errors;
  }
  void lose(int place) { members_.erase(members_.begin() + place); }
  int count() const { return static_cast<int>(members_.size()); }
  const Training& at(int place) const { return *trainings[members_[place]]; }
  TestReplica& live(int place) { return *live_[members_[place]]; }

  std::vector<std::unique_ptr<Training>> trainings;
  std::shared_ptr<ReplicaGroup> view;
  std::vector<std::vector<Tensor>> results;  // the last step's results; index: member

 private:
  const Setting s_;
  const int inner_;
  std::vector<std::unique_ptr<TestReplica>> live_;
  std::vector<int> members_;
};

std::vector<std::string> no_errors(int n) { return std::vector<std::string>(static_cast<size_t>(n)); }

void expect_results(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    const auto same = testing::same_bits(got[i], want[i]);
    EXPECT_TRUE(same) << what << ", result " << i << ": " << same.message();
  }
}

// Replicas against ranks of one job, or against one device.
void expect_equal(const Setting& s, int count, const std::string& other) {
  const std::string what = str_cat(mesh_of(count, s.inner), s.experts ? " moe" : " gpt", " against ", other);
  SCOPED_TRACE(what);
  Training want(s);
  Replicas replicas(s, count);
  for (int64_t k = 0; k < 3; ++k) {
    ASSERT_EQ(replicas.step(k), no_errors(count));
    const std::vector<Tensor> results = want.step(other, k, count);
    for (int p = 0; p < count; ++p) expect_results(replicas.results[p], results, str_cat(what, ", step ", k));
  }
  for (int p = 0; p < count; ++p) expect_same(replicas.at(p).values(), want.values(), str_cat(what, ", place ", p));
}

TEST(Replicas, HaveTheBitsOfRanksOfOneJob) {
  for (const bool experts : {false, true})
    for (const char* inner : {"", "fsdp2", "tp2"})
      expect_equal({.inner = inner, .experts = experts}, 2, mesh_of(2, inner));
  expect_equal({.inner = "pp2", .microbatches = 2}, 2, "replica2,pp2");
  expect_equal({.inner = "pp2", .microbatches = 2, .clip = false}, 2, "replica2,pp2");
  expect_equal({.inner = "ep2", .experts = true}, 2, "replica2,ep2");
  expect_equal({.inner = "fsdp2", .microbatches = 2, .clip = false}, 2, "replica2,fsdp2");
  expect_equal({.inner = "dp2", .clip = false, .zero = 1}, 2, "replica2,dp2");
}

TEST(Replicas, HaveTheBitsOfOneDeviceWithExactSums) {
  for (const bool experts : {false, true})
    for (const char* inner : {"", "fsdp2"}) expect_equal({.inner = inner, .experts = experts, .verify = true}, 2, "");
}

// The step of three live replicas is the step of dp3 with a batch of three parts.
TEST(Replicas, AreDataParallel) {
  for (const bool experts : {false, true}) {
    const Setting s{.inner = "", .experts = experts, .verify = true};
    Training replicas(s), dp(s);
    for (int64_t k = 0; k < 2; ++k) expect_results(replicas.step("replica3", k, 3), dp.step("dp3", k, 3), "dp3");
    expect_same(replicas.values(), dp.values(), "dp3");
  }
}

TEST(Replicas, OfOneVoteToo) {
  for (const char* inner : {"", "fsdp2"}) {
    const Setting s{.inner = inner};
    Replicas one(s, 1);
    Training want(s);
    ASSERT_EQ(one.step(0), no_errors(1));
    EXPECT_TRUE(one.live(0).last.committed);
    want.step(inner, 0, 1);
    expect_same(one.at(0).values(), want.values(), str_cat("replica1,", inner));
  }
}

// A sum of one replica fails, or a sum of the others.
void expect_no_change(const Setting& s, int count) {
  SCOPED_TRACE(mesh_of(count, s.inner));
  Training want(s);
  Replicas replicas(s, count);
  ASSERT_EQ(replicas.step(0), no_errors(count));
  want.step(mesh_of(count, s.inner), 0, count);
  const int64_t sums = replicas.view->sums();
  ASSERT_GT(sums, 1);
  const int inner = Mesh::parse(s.inner).size();
  const Values before = want.values();
  for (int64_t k = 0; k < sums; ++k) {
    const ReplicaFaults::Sum sum{.place = static_cast<int>(k % count),
                                 .rank = static_cast<int>(k / 2 % inner),
                                 .number = k,
                                 .on_others = k % 3 == 2};
    const std::vector<std::string> errors = replicas.step(1, {.sum = sum});
    // A rank of a pipeline may have fewer sums than another one.
    if (errors == no_errors(count)) {
      EXPECT_TRUE(Mesh::parse(s.inner).find("pp"));
      want.step(mesh_of(count, s.inner), 1, count);
    } else {
      EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(count), "uncommitted")) << "sum " << k;
    }
    if (k % 5 == 0 || k + 1 == sums)
      for (int p = 0; p < count; ++p)
        expect_same(replicas.at(p).values(), want.values(), str_cat("after sum ", k, " failed, place ", p));
  }
  ASSERT_EQ(replicas.step(1), no_errors(count));
  want.step(mesh_of(count, s.inner), 1, count);
  for (int p = 0; p < count; ++p) expect_same(replicas.at(p).values(), want.values(), "the step again");
}

TEST(Replicas, AFailedSumChangesNoCell) {
  expect_no_change({.inner = ""}, 2);
  expect_no_change({.inner = "fsdp2", .clip = false}, 2);
  expect_no_change({.inner = "tp2", .experts = true}, 3);
  expect_no_change({.inner = "dp2", .clip = false, .zero = 1}, 2);
  expect_no_change({.inner = "pp2", .microbatches = 2, .clip = false}, 2);
}

// One of three replicas dies between its sums and the ack, or after an ack that the others do not see. The others
// commit the step, since all of them have its sums, and go on as two. Their cells do not move.
TEST(Replicas, TheViewDecidesAStepInDoubt) {
  for (const bool after : {false, true})
    for (const char* inner : {"", "fsdp2"})
      for (const int dead : {0, 2}) {
        const std::string what = str_cat(after ? "after" : "before", " the ack, ", inner, ", place ", dead);
        SCOPED_TRACE(what);
        const Setting s{.inner = inner};
        Training want(s);
        Replicas replicas(s, 3);
        ASSERT_EQ(replicas.step(0), no_errors(3));
        const int64_t moved = replicas.at(1).moved();
        ReplicaFaults faults;
        (after ? faults.dies_after_ack : faults.dies_before_ack) = dead;
        std::vector<std::string> errors = replicas.step(1, faults);
        if (!after) {
          expect_has(errors[dead], "the replica dies before the ack");
          errors[dead] = "";
        }
        EXPECT_EQ(errors, no_errors(3));
        replicas.lose(dead);
        ASSERT_EQ(replicas.step(2), no_errors(2));
        EXPECT_EQ(replicas.at(0).moved(), moved);
        for (int64_t k = 0; k < 3; ++k) want.step(mesh_of(k < 2 ? 3 : 2, inner), k, k < 2 ? 3 : 2);
        for (int p = 0; p < 2; ++p) expect_same(replicas.at(p).values(), want.values(), what);
      }
}

// The largest note of all processes of all replicas reaches each of them.
TEST(Replicas, NotesRideOnTheVote) {
  Replicas replicas({.inner = "fsdp2"}, 2);
  replicas.live(1).noted = 15;
  ASSERT_EQ(replicas.step(0), no_errors(2));
  for (int p = 0; p < 2; ++p) EXPECT_EQ(replicas.live(p).last.note, 15);
}

// A step that writes nothing has a vote at its end.
TEST(Replicas, AStepWithoutWritesVotes) {
  TestReplica live[2];
  for (const bool fails : {false, true}) {
    const auto view =
        std::make_shared<ReplicaGroup>(2, 1, ReplicaFaults{.sum = {.place = fails ? 1 : -1, .rank = 0, .number = 0}});
    std::vector<std::string> got(2);
    std::vector<std::thread> threads;
    for (int p = 0; p < 2; ++p)
      threads.emplace_back([&, p] {
        live[p].enter(view, p);
        ScopedReplicas scope(live[p]);
        auto step = dist::compile([](Tensor x) { return sum(x); }, {.mesh = Mesh::parse("replica2")});
        try {
          got[p] = str_cat(step(ones({4, 8})).item<float>());
        } catch (const Uncommitted& e) {
          got[p] = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
    for (const std::string& text : got)
      EXPECT_EQ(text, fails ? "the step is not committed, because a sum over replica or the vote failed; no cell has "
                              "changed"
                            : "32");
  }
}

// An op that throws on the values of a failed sum does not end the replica. An op that throws again does.
TEST(Replicas, AnOpThatThrowsIsNotCommitted) {
  for (const char* inner : {"", "fsdp2", "tp2"}) {
    SCOPED_TRACE(inner);
    const int ranks = Mesh::parse(inner).size();
    TestReplica live[2];
    std::vector<std::unique_ptr<Buffer>> made;
    std::vector<std::function<Tensor(Tensor)>> steps;
    for (int p = 0; p < 2; ++p) {
      made.push_back(std::make_unique<Buffer>(zeros({}), "made"));
      const auto fn = [&cell = *made.back()](Tensor x) {
        const Tensor index = (reshape(sum(x), {1}) - 31).to(kInt64);  // 1 with all rows of ones
        const Tensor picked = sum(index_select(arange(4).to(kFloat32), 0, index));
        cell.set(cell.value() + picked);
        return picked;
      };
      ScopedReplicas scope(live[p]);
      steps.emplace_back(dist::compile(fn, {.mesh = Mesh::parse(mesh_of(2, inner))}));
    }
    const auto step = [&](double value, const ReplicaFaults::Sum& fault) {
      const auto view = std::make_shared<ReplicaGroup>(2, ranks, ReplicaFaults{.sum = fault});
      std::vector<std::string> got(2);
      std::vector<std::thread> threads;
      for (int p = 0; p < 2; ++p)
        threads.emplace_back([&, p] {
          live[p].enter(view, p);
          ScopedReplicas scope(live[p]);
          try {
            got[p] = str_cat(steps[p](full({4, 8}, value)).item<float>());
          } catch (const Uncommitted&) {
            got[p] = "uncommitted";
          } catch (const Error& e) {
            got[p] = e.what();
          }
        });
      for (std::thread& t : threads) t.join();
      return got;
    };
    const std::vector<std::string> good{"1", "1"}, uncommitted{"uncommitted", "uncommitted"};
    EXPECT_EQ(step(1, {}), good);
    for (const bool on_others : {false, true})
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(step(1, {.place = 0, .rank = rank, .number = 0, .on_others = on_others}), uncommitted);
    EXPECT_EQ(step(2, {}), uncommitted);
    // Each further call is an error, or the first of another rank that throws.
    std::vector<std::string> got = uncommitted;
    for (int call = 1; call < 2 * ranks + 1 && got == uncommitted; ++call) got = step(2, {});
    expect_has(got[0] + got[1], "index 33 at position 0 is out of range; need 0 to 3");
    EXPECT_EQ(step(1, {}), good);
    for (const auto& cell : made) EXPECT_EQ(cell->value().item<float>(), 2);
  }
}

// A collective inside the replica that starts before a vote and is waited for after it does not break its communicator.
TEST(Replicas, CollectivesThatCrossTheVoteEnd) {
  TestReplica live;
  World world(Mesh::parse("fsdp2"), {.replicas = &live});
  for (const bool fails : {true, false}) {
    live.enter(
        std::make_shared<ReplicaGroup>(1, 2, ReplicaFaults{.sum = {.place = fails ? 0 : -1, .rank = 1, .number = 0}}),
        0);
    // Large, so that ranks copy and add in their waits.
    constexpr int64_t kSize = 1 << 20;
    std::vector<std::vector<int64_t>> out(2, std::vector<int64_t>(kSize));
    const auto step = [&](int r) {
      RankContext& me = *RankContext::current();
      world.replica_rank(r)->begin({7});
      std::vector<int64_t> mine(kSize, r + 1);
      int64_t sum[1] = {0};
      const StridedView in{mine.data(), kInt64, {kSize}, {1}}, all{out[r].data(), kInt64, {kSize}, {1}};
      const StridedView one{mine.data(), kInt64, {1}, {1}}, to{sum, kInt64, {1}, {1}};
      me.start("fsdp", {.kind = Collective::kAllReduce, .in = in, .out = all, .site = 7});
      me.run("replica", {.kind = Collective::kAllReduce, .in = one, .out = to});
      EXPECT_EQ(sum[0], r + 1);
      try {
        me.agree();
      } catch (const Error&) {
        me.abandon();
        throw;
      }
      me.finish(7);
    };
    if (fails) {
      EXPECT_THROW(world.run(step), Uncommitted);
    } else {
      world.run(step);
    }
    for (const std::vector<int64_t>& of_rank : out) EXPECT_EQ(of_rank, std::vector<int64_t>(kSize, 3));
  }
}

TEST(Replicas, ErrorsAreOneSentence) {
  const auto refused = [](const auto& fn, const std::string& mesh, const Plan& how = {}) {
    return error_of([&] { dist::plan(fn, {.mesh = Mesh::parse(mesh), .plan = how}, ones({4, 8})); });
  };
  Parameter w(ones({8}), "w");
  expect_has(refused([&](Tensor x) { return x * w.value(); }, "replica2,fsdp2"),
             "mesh replica2,fsdp2: result 0 of the step, f32[4, 8], is split over replica; need results that are equal "
             "on all replicas, such as a mean over the batch");
  const auto gathers = [&](Tensor x) {
    const Tensor y = x * w.value();
    return sum(square(matmul(y, transpose(y, 0, 1))));
  };
  expect_has(refused(gathers, "replica2"), "forbid: 'allgather@replica' forbids the all-gather of ");
  expect_has(refused(gathers, "replica2"),
             "to avoid it: replicas can only sum, because any of them may die: a step that needs no rows of other "
             "replicas, or dp");
  expect_has(refused([](Tensor x) { return sum(x); }, "replica3"),
             "mesh replica3: a batch of 4 (argument f32[4, 8]) does not divide over replica (3 ranks)");
  expect_has(refused([](Tensor x) { return accumulate(4, x, [](const Tensor& a) { return sum(a); }); }, "replica2"),
             "mesh replica2: 4 parts of a batch of 4 have 1 rows, which do not divide over replica");
  expect_has(
      refused([&](Tensor x) { return sum(x * w.value()); }, "replica2", {{"w", {{"replica", Shard(0)}}}}),
      "mesh replica2: 'w' is split over replica; need rules for other dimensions: each replica has the whole state");
}

TEST(Replicas, AStepOfAnotherNumberIsAnError) {
  TestReplica live;
  live.enter(std::make_shared<ReplicaGroup>(1, 1), 0);
  ScopedReplicas scope(live);
  auto step = dist::compile([](Tensor x) { return sum(x); }, {.mesh = Mesh::parse("replica2")});
  expect_has(error_of([&] {
               step(ones({4, 8}));
             }),
             "step: mesh replica2 has 2 replicas, and 1 are live; need a step compiled for this number");
}

}  // namespace
}  // namespace weft::dist
