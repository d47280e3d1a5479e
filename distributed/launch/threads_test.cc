// Threads that read the cells of a step while it runs on a mesh whose ranks are threads. For processes:
// distributed/testing/job_threads_test.cc.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "distributed/launch/compile.h"
#include "framework/dispatch/rank/rank.h"
#include "ops/core/functions/custom_op.h"
#include "weft.h"

namespace weft::dist {
namespace {

TEST(Threads, ReadWholeValuesBesideAStep) {
  constexpr int kSteps = 100;
  const Parameter w(zeros({64, 64}), "w");
  CompileOptions options;
  options.mesh = Mesh::parse("dp2");
  options.plan.zero = 3;
  const auto step = dist::compile(
      [w](Tensor x) {
        w.set(w + 1);
        return (x * w).sum();
      },
      options);
  std::atomic<bool> done{false};
  int64_t torn = 0, backwards = 0;
  std::thread reader([&] {
    float last = 0;
    while (!done) {
      const std::vector<float> v = w.value().to_vector<float>();
      for (float x : v) torn += x != v[0];
      backwards += v[0] < last;
      last = v[0];
    }
  });
  for (int i = 0; i < kSteps; ++i) step(ones({64, 64}));
  done = true;
  reader.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(backwards, 0);
  EXPECT_EQ(w.value().to_vector<float>()[0], kSteps);
}

// A thread that starts in a step reads the value that the step commits. A value that was read before keeps its numbers.
// The cell is sharded (zero 3, tp) or replicated. The reader is a read, a state_dict, an evaluation or an average.
TEST(Threads, AReadInAStepIsOfItsCommit) {
  static std::function<void()> in_step;
  static const CustomOp op{{
      .name = "test.hook",
      .num_inputs = 1,
      .infer = [](const InferCall& c) { return Types{c.in[0]}; },
      .kernel =
          [](const KernelCall& c) {
            for (int64_t i = 0; i < c.in[0].numel(); ++i) c.out[0].as<float>()[i] = c.in[0].as<float>()[i];
            if (RankContext::require("hook").rank() == 0 && in_step) in_step();
          },
  }};
  struct Model : nn::Module {
    Parameter w{zeros({8, 8})};
    Model() { register_parameter("w", w); }
  };
  for (const char* mesh : {"dp2", "fsdp2", "tp2", "dp2,tp2"}) {
    Model model;
    const Parameter& w = model.w;
    const CompileOptions options{.mesh = Mesh::parse(mesh)};
    const auto step = dist::compile(
        [w](Tensor x) {
          const Tensor y = matmul(op({x}), w);
          w.set(w + 1);
          return y;
        },
        options);
    const Buffer average(zeros({8, 8}), "average");
    const auto follow = weft::compile([w, average](Tensor by) {
      average.set(average + w * by);
      return by;
    });
    const auto evaluation = weft::compile([w](Tensor x) { return matmul(x, w); });
    const auto on_mesh = dist::compile([w](Tensor x) { return matmul(x, w); }, options);
    const Tensor x = ones({4, 8});
    const std::function<Tensor()> reads[] = {[&] { return w.value(); }, [&] { return model.state_dict().at("w"); },
                                             [&] { return evaluation(x) / 8; }, [&] { return on_mesh(x) / 8; },
                                             [&] {
                                               average.set(zeros({8, 8}));
                                               follow(ones({}));
                                               return average.value();
                                             }};
    float steps = 0;
    for (const auto& read : reads) {
      const Tensor before = w.value();
      Tensor v;
      std::thread reader;
      in_step = [&] { reader = std::thread([&] { v = read(); }), in_step = {}; };
      step(x);
      reader.join();
      ++steps;
      EXPECT_TRUE(equal(v, full(v.shape(), steps))) << mesh << ", read " << steps;
      EXPECT_TRUE(equal(before, full({8, 8}, steps - 1))) << mesh << ", read " << steps;
    }
  }
}

}  // namespace
}  // namespace weft::dist
