#include "distributed/stages/microbatch.h"

#include <gtest/gtest.h>

#include <map>

#include "compiler/passes/loops.h"
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

// The results of a step from its graph of one microbatch, whose values are added in order. Does not change cells.
std::vector<Tensor> run_microbatches(const Graph& joint, const Microbatch& m, const std::vector<Tensor>& args) {
  const Graph& g = *m.graph;
  const MicrobatchValues step(joint, m, args);
  std::map<int32_t, Tensor> sums;
  for (int64_t k = 0;; ++k) {
    internal::BodyValues values = step.leaves(k);
    for (int32_t id = 0; id < g.size(); ++id) {
      const Node& n = g.node(id);
      if (is_leaf(n)) continue;
      if (n.op != &microbatch_sum_op) {
        values.run(id);
        continue;
      }
      Tensor& sum = sums[id];
      sum = sum.defined() ? sum + values(n.inputs[0]) : values(n.inputs[0]);
      values.set({id, 0}, sum);
    }
    // Earlier results follow from sums of fewer microbatches.
    if (k + 1 == m.count) return step.results(values);
  }
}

void expect_bits_of_the_loop(const Graph& joint, const std::vector<Tensor>& args) {
  const NoGrad guard;
  const Microbatch m = one_microbatch(joint);
  verify(*m.graph);
  ASSERT_EQ(m.arguments, args.size());
  const std::vector<Tensor> got = run_microbatches(joint, m, args);
  const std::vector<Tensor> want = interpreted(joint, args);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << "result " << i;
}

int count_of(const Graph& g, const OpDef& op) {
  int n = 0;
  for (int32_t id = 0; id < g.size(); ++id) n += g.node(id).op == &op;
  return n;
}

void expect_step(const TrainerStep& s, int64_t microbatches) {
  const Microbatch m = one_microbatch(*s.joint);
  EXPECT_EQ(m.count, microbatches);
  // There is a sum for each gradient and for each returned figure.
  EXPECT_GE(count_of(*m.graph, microbatch_sum_op), static_cast<int>(s.model->parameters().size()) + 1);
  for (int32_t id = 0; id < m.graph->size(); ++id) EXPECT_FALSE(is_sum_over_parts(m.graph->node(id)));
  expect_bits_of_the_loop(*s.joint, s.args);
}

TEST(Microbatch, GptHasTheBitsOfTheLoop) {
  expect_step(trainer_step(gpt::family(), "gpt_tiny", 3, {{"context", "16"}}), 3);
}

TEST(Microbatch, DropoutDrawsTheNumbersOfTheWholeBatch) {
  const TrainerStep s = trainer_step(gpt::family(), "gpt_tiny", 2, {{"context", "16"}, {"dropout", "0.2"}});
  expect_step(s, 2);
  // The sources are tokens, targets, and the number of the microbatch.
  EXPECT_EQ(one_microbatch(*s.joint).sources.size(), 3u);
}

TEST(Microbatch, LlamaHasTheBitsOfTheLoop) {
  expect_step(trainer_step(llama::family(), "llama_tiny", 2, {{"context", "16"}, {"tied", "true"}}), 2);
}

TEST(Microbatch, ExpertsHaveTheBitsOfTheLoop) {
  expect_step(trainer_step(moe::family(), "moe_tiny", 4, {{"context", "16"}}), 4);
}

// ---- small steps ----

struct Small {
  Parameter w{Tensor::from_vector<float>({0.5f, -1.25f, 3.0f, 0.1f}, {4}), "w"};
  std::vector<Tensor> args = {Tensor::from_vector<float>({1, 2, 3, 4, -5, 6, 0.25f, -8, 9, 1, 1, 7}, {3, 4})};
  Ref<Graph> joint(const TensorFn& fn) const { return joint_for_stages(fn, args); }
};

TEST(Microbatch, ResultsThatNoMicrobatchChanges) {
  const Small s;
  const Ref<Graph> joint = s.joint([&](std::span<const Tensor> in) {
    const auto [loss, zero, minus_zero, none, fixed, minus, twice] = accumulate(3, in[0], [&](const Tensor& x) {
      const Tensor y = sum(x * s.w.value());
      return std::tuple{
          y, zeros({}, {.dtype = kInt64}), full({2}, -0.0), zeros({0, 2}), s.w.value().detach() * 3.0, -y, y + y};
    });
    return std::vector<Tensor>{loss, zero, minus_zero, none, fixed, minus, twice};
  });
  expect_bits_of_the_loop(*joint, s.args);
}

TEST(Microbatch, SixteenBitsAreSummedInF32) {
  const Small s;
  const Ref<Graph> joint = s.joint([&](std::span<const Tensor> in) {
    return std::vector<Tensor>{accumulate(3, in[0], [&](const Tensor& x) { return (x * 1.01).to(kBFloat16); })};
  });
  const Microbatch m = one_microbatch(*joint);
  for (int32_t id = 0; id < m.graph->size(); ++id)
    if (m.graph->node(id).op == &microbatch_sum_op) {
      EXPECT_EQ(m.graph->node(id).outputs[0].dtype, kFloat32);
    }
  expect_bits_of_the_loop(*joint, s.args);
}

TEST(Microbatch, OtherLoopsAreNotMicrobatches) {
  const Small s;
  const Ref<Graph> joint = s.joint([&](std::span<const Tensor> in) {
    const auto [y, last] = scan([](Tensor h, Tensor x) { return std::pair{h * 0.5 + x, h}; }, zeros({4}), in[0]);
    const Tensor total = accumulate(3, in[0], [&](const Tensor& x) {
      return scan([](Tensor h, Tensor r) { return std::pair{h + r, r}; }, zeros({4}), x).second * s.w.value().detach();
    });
    return std::vector<Tensor>{y, last, total};
  });
  expect_bits_of_the_loop(*joint, s.args);
}

// ---- errors ----

std::string error_of_step(const Small& s, const TensorFn& fn) {
  const Ref<Graph> joint = s.joint(fn);
  return error_of([&] { one_microbatch(*joint); });
}

TEST(Microbatch, NoAccumulate) {
  const Small s;
  const char* text =
      "pp: the step has no accumulate() of 2 parts or more with detached results; need accumulate(microbatches, batch, "
      "fn) with grad() and detach() inside fn";
  const auto loss = [&](const Tensor& x) { return sum(x * s.w.value()); };
  EXPECT_EQ(error_of_step(s, [&](auto in) { return std::vector{loss(in[0])}; }), text);
  EXPECT_EQ(error_of_step(s, [&](auto in) { return std::vector{accumulate(1, in[0], loss)}; }), text);
  EXPECT_EQ(error_of_step(s, [&](auto in) { return grad(accumulate(3, in[0], loss), {s.w.value()}); }), text);
}

// "distributed/stages/microbatch_test.cc:12".
std::string at(int line) { return str_cat("distributed/stages/microbatch_test.cc:", line); }

TEST(Microbatch, TwoAccumulates) {
  const Small s;
  const auto total = [](const Tensor& x) { return sum(x); };
  const int line = __LINE__ + 2;
  const std::string text = error_of_step(s, [&](auto in) {
    const Tensor first = accumulate(3, in[0], total);
    return std::vector{first, accumulate(3, in[0], [&](const Tensor& x) { return sum(exp(x)); })};
  });
  EXPECT_EQ(text, str_cat("pp: the step calls accumulate() at ", at(line), " and at ", at(line + 1),
                          "; need one call, whose function becomes the stages"));
}

TEST(Microbatch, ABatchThatArgumentsDoNotGive) {
  const Small s;
  int line = 0;
  const auto error = [&](const std::function<Tensor(const Tensor&)>& batch) {
    return error_of_step(s, [&](auto in) {
      line = __LINE__ + 1;
      return std::vector{accumulate(3, batch(in[0]), [](const Tensor& x) { return sum(x); })};
    });
  };
  const auto text = [&] {
    return str_cat("pp: the batch of accumulate() at ", at(line),
                   " follows from cells or random numbers; need values that follow from arguments of the step "
                   "alone");
  };
  const std::string of_cells = error([&](const Tensor& x) { return x * s.w.value().detach(); });
  EXPECT_EQ(of_cells, text());
  EXPECT_EQ(error([](const Tensor& x) { return x + rand(x.shape()); }), text());
  EXPECT_EQ(error([](const Tensor& x) { return x * 2.0 + arange(4); }), "");
}

}  // namespace
}  // namespace weft::dist
