// compile(): errors name lines and leave state whole, and a step's queries describe it.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "ops/attention/flex_attention.h"
#include "ops/attention/masks/masks.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::placed_error_of;

TEST(CompileErrors, ReadingAValueInCaptureNamesTheLine) {
  auto step = compile([](Tensor x) { return x * x.sum().item<float>(); });
  std::string e = placed_error_of([&] { step(ones({3})); });
  EXPECT_NE(e.find(str_cat("compile_errors_test.cc:", __LINE__ - 2)), std::string::npos) << e;
  EXPECT_NE(e.find("inside capture"), std::string::npos) << e;
  // The failed capture leaves nothing behind.
  EXPECT_FALSE(is_capturing());
  EXPECT_EQ((ones({1}) + 1.0).item<float>(), 2);
}

TEST(CompileErrors, ErrorsOfKernelsNameTheLineAndChangeNothingBeforeTheFirstWrite) {
  Parameter w(ones({4, 2}));
  auto step = compile([&](Tensor index) {
    Tensor rows = embedding(index, w);
    w.set(w.value() + rows.sum());
    return rows;
  });
  Tensor good = Tensor::from_vector<int64_t>({0, 3}, {2}), bad = Tensor::from_vector<int64_t>({0, 4}, {2});
  step(good);
  std::vector<float> before = w.value().to_vector<float>();
  std::string e = placed_error_of([&] { step(bad); });
  EXPECT_NE(e.find("compile_errors_test.cc:"), std::string::npos) << e;
  EXPECT_NE(e.find("4"), std::string::npos) << e;
  EXPECT_EQ(w.value().to_vector<float>(), before);
  step(good);
}

Tensor row(int64_t i) { return Tensor::from_vector<int64_t>({i}, {1}); }

// Steps that write a cell and look up an index. The cell is written before the look-up in the program's order, but in
// memory after it: a step that fails changes nothing, and the next one gives the same as without it.
TEST(CompileErrors, AStepThatFailsChangesNothing) {
  const Buffer seen(ones({4}), "seen");
  const std::vector<Parameter> weights{Parameter(ones({4}), "a"), Parameter(ones({4, 4}), "b")};
  const auto train = [&](const Tensor& loss) {
    const std::vector<Tensor> g = grad(loss, weights);
    for (size_t i = 0; i < g.size(); ++i) weights[i].set(weights[i].value() - 0.125 * g[i]);
    return loss;
  };
  const auto product = [&](const Tensor& x) {
    seen.set(seen.value() * 0.5 + 1.0);  // as a running mean
    return matmul(x * weights[0], weights[1]);
  };
  const std::pair<const char*, std::function<Tensor(Tensor)>> steps[] = {
      {"the forward pass writes",
       [&](Tensor i) {
         return train(index_select(product(ones({1, 4})), 1, i).sum());
       }},
      {"the index is of the new value",
       [&](Tensor i) {
         weights[0].set(weights[0].value() * 0.5);
         return index_select(weights[0].value(), 0, i);
       }},
      {"a metric after the update",
       [&](Tensor i) {
         const Tensor y = product(ones({1, 4}));
         return train(y.sum()) + index_select(y, 1, i).sum();
       }},
      {"a division of integers",
       [&](Tensor i) {
         const Tensor y = product(ones({1, 4}));
         return train(y.sum()) + floor_divide(full({1}, 12, {.dtype = kInt64}), 9 - i).to(kFloat32).sum();
       }},
      {"only the derivative looks up",
       [&](Tensor i) {
         const Tensor y = product(ones({1, 4}));
         static_cast<void>(train(index_select(y, 1, i).sum()));
         return i;
       }},
  };
  for (const auto& [name, fn] : steps) {
    SCOPED_TRACE(name);
    const auto step = compile(fn);
    step(row(0));
    std::vector<std::vector<float>> values{seen.value().to_vector<float>()};
    for (const Parameter& w : weights) values.push_back(w.value().to_vector<float>());
    for (bool held : {true, false}) {
      std::vector<Tensor> holders;  // the step must then write to fresh storage
      if (held) holders = {seen.value(), weights[0].value(), weights[1].value()};
      const std::string e = error_of([&] { step(row(9)); });
      EXPECT_NE(e, "");
      EXPECT_EQ(e.find("torn"), std::string::npos) << e;
      EXPECT_EQ(seen.value().to_vector<float>(), values[0]);
      for (size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(weights[i].value().to_vector<float>(), values[i + 1]);
    }
    step(row(0));
  }
}

// The other elements of a cell that gets a slice stay in place, so a later failure tears it.
TEST(CompileErrors, AStepThatFailsTearsTheCellOfASlice) {
  const Buffer cache(zeros({8, 2}), "cache");
  const auto step = compile([&](Tensor at, Tensor index) {
    cache.set(dynamic_update_slice(cache.value(), ones({1, 2}), {at, 0}));
    return index_select(sum(cache.value(), {1}), 0, index);
  });
  const Tensor at = full({}, 3, {.dtype = kInt64});
  EXPECT_EQ(step(at, row(3)).item<float>(), 2);
  const std::string e = error_of([&] { step(at, row(9)); });
  EXPECT_NE(e.find("cells were already being written: cell 'cache' is torn: load a checkpoint before the next step"),
            std::string::npos)
      << e;
  EXPECT_NE(error_of([&] { cache.value(); }).find("'cache' was torn"), std::string::npos);
  EXPECT_NE(error_of([&] { step(at, row(3)); }).find("'cache' was torn"), std::string::npos);
  cache.set(zeros({8, 2}));
  EXPECT_EQ(step(at, row(3)).item<float>(), 2);
  const Tensor held = cache.value();  // the failed step wrote elsewhere, and nothing is lost
  EXPECT_EQ(error_of([&] { step(at, row(9)); }).find("load a checkpoint"), std::string::npos);
  EXPECT_EQ(cache.value()[3].to_vector<float>(), std::vector<float>(2, 1));
}

TEST(CompileErrors, OneCallAtATime) {
  struct Holder {
    std::function<void()> again;
  };
  auto h = std::make_shared<Holder>();
  auto step = compile([h](Tensor x) {
    if (h->again) h->again();
    return x + 1.0;
  });
  Tensor x = ones({2});
  std::string inner;
  h->again = [&] { std::thread([&] { inner = error_of([&] { step(x); }); }).join(); };
  step(x);
  EXPECT_NE(inner.find("already running"), std::string::npos) << inner;
  h->again = [&] { inner = error_of([&] { step(ones({3})); }); };
  step(ones({5}));  // in itself
  EXPECT_NE(inner.find("already running"), std::string::npos) << inner;
  h->again = {};
  EXPECT_EQ(step(x).to_vector<float>(), (std::vector<float>{2, 2}));
  std::vector<std::thread> threads;  // one compiled function per thread is fine
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      auto own = compile([](Tensor x) { return x * 2.0; });
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(own(full({3}, t + 1.0)).to_vector<float>(), std::vector<float>(3, 2.0f * (t + 1)));
    });
  for (std::thread& t : threads) t.join();
}

TEST(CompileErrors, UndefinedAndLeakedTensorsAreErrors) {
  auto step = compile([](Tensor x) { return x; });
  const auto where = [](int line) { return str_cat("; at compiler/exec/compile_errors_test.cc:", line); };
  EXPECT_EQ(placed_error_of([&] { step(Tensor()); }),
            "compile: argument 0 is an undefined tensor; need one with a value" + where(__LINE__ - 3));
  auto none = compile([](Tensor) { return Tensor(); });
  EXPECT_EQ(placed_error_of([&] { none(ones({1})); }),
            "compile: result 0 of the function is an undefined tensor; need one with a value" + where(__LINE__ - 2));
  Tensor leaked;
  auto leak = compile([&](Tensor x) {
    leaked = x;
    return x;
  });
  leak(ones({1}));
  EXPECT_NE(error_of([&] { step(leaked); }).find("traced by a capture that has ended"), std::string::npos);
}

TEST(CompileErrors, OutOfMemoryNamesTheStepAndItsNeed) {
  auto step = compile([](Tensor x) { return x.expand({1 << 25, 1 << 24}) + 1.0; });
  const std::string e = placed_error_of([&] { step(ones({1})); }, Code::kResourceExhausted);
  for (const std::string& part : {std::string("out of memory on cpu: asked for 2251799813685248 bytes"),
                                  str_cat("; the step compiled at compiler/exec/compile_errors_test.cc:", __LINE__ - 3,
                                          " needs 2251799813685248 bytes at its peak, 0 of them for its own values")})
    EXPECT_NE(e.find(part), std::string::npos) << e;
}

TEST(CompileErrors, AFunctionThatIsCompiledInALoopIsReportedOnce) {
  const auto reported = [](bool kept) {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 20; ++i) {
      auto step = compile([](Tensor x) { return x * 2.0; });
      step(ones({2}));
      if (kept) step(ones({2}));
    }
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(reported(true), "");
  EXPECT_EQ(reported(false), str_cat("weft: compile at compiler/exec/compile_errors_test.cc:", __LINE__ - 7,
                                     ": 8 compiled functions in a row were made here, captured for one call and "
                                     "dropped, so nothing is reused: call compile() once, outside the loop, and keep "
                                     "its result\n"));
}

TEST(CompileErrors, CommitIfNamesItsLine) {
  const auto where = [](int line) { return str_cat("; at compiler/exec/compile_errors_test.cc:", line); };
  EXPECT_EQ(placed_error_of([] { commit_if(ones({})); }),
            "commit_if: called outside a step; need to be inside a function passed to compile()" + where(__LINE__ - 1));
  auto step = compile([](Tensor x) {
    commit_if(x);
    return x;
  });
  EXPECT_EQ(placed_error_of([&] { step(ones({2})); }), "commit_if: got f32[2]; need a 0-d bool" + where(__LINE__ - 3));
}

TEST(CompileErrors, FirstNonfiniteNamesOpAndLine) {
  Parameter w(Tensor::from_vector({1, -1}, {2}));
  auto step = compile([&](Tensor x) {
    Tensor masked = where(x > 0.0, x, -std::numeric_limits<double>::infinity());  // allowed
    Tensor p = softmax(masked, 0);
    Tensor bad = log(w * x);
    w.set(w.value() + bad);
    return (bad + p).sum();
  });
  Tensor x = Tensor::from_vector({1, 2}, {2});
  std::string e = step.first_nonfinite(x);
  EXPECT_NE(e.find("NaN first at [1] of the result of log"), std::string::npos) << e;
  EXPECT_NE(e.find(str_cat("compile_errors_test.cc:", __LINE__ - 7)), std::string::npos) << e;
  EXPECT_EQ(w.value().to_vector<float>(), (std::vector<float>{1, -1}));
  e = step.first_nonfinite(Tensor::from_vector({1, -2}, {2}));
  EXPECT_NE(e.find("no op"), std::string::npos) << e;
}

// The FLOPs of one launch of attention in the report of a step, "at most" included.
std::string attention_flops(const MaskMod& mask) {
  auto step = compile([&](Tensor q, Tensor k, Tensor v) { return flex_attention(q, k, v, {.mask_mod = mask}); });
  const Tensor x = ones({1, 2, 200, 8});
  step(x, x, x);
  std::string report = step.report();
  report.erase(0, report.find("launches (bytes"));
  std::string total = report.substr(report.find("  total "));
  total.erase(total.find(" FLOPs"));
  return total.substr(total.find("bytes, ") + 7);
}

TEST(Report, CountsTheVisibleScoresOfAttention) {
  const int64_t score = 2 * (8 + 8) + 20;
  EXPECT_EQ(attention_flops({}), str_cat(2 * 200 * 200 * score));
  EXPECT_EQ(attention_flops(attention::causal()), str_cat(2 * (200 * 201 / 2) * score));
  const Tensor doc = zeros({200}, {.dtype = kInt64});
  EXPECT_EQ(attention_flops(attention::document(doc)), str_cat("at most ", 2 * 200 * 200 * score));
}

TEST(CompileErrors, ReportAndGraphs) {
  Parameter w(ones({4}), "scale");
  auto step = compile([&](Tensor x) {
    Tensor y = x * w * 2.5;
    w.set(w.value() * 0.5);
    return y;
  });
  EXPECT_NE(error_of([&] { step.report(); }).find("not been captured"), std::string::npos);
  step(ones({4}));
  const std::string r = step.report();
  for (const char* part : {"2.5 at ", "compile_errors_test.cc", "mul", "peak ", "FLOPs", "passes", "not done"})
    EXPECT_NE(r.find(part), std::string::npos) << part << "\n" << r;
  EXPECT_EQ(step.graph("captured").stage, "captured");
  EXPECT_EQ(step.graph("joint").stage, "joint");
  EXPECT_EQ(step.graph("scheduled").stage, "scheduled");
  EXPECT_NE(error_of([&] { step.graph("fuse"); }).find("need captured, joint, fused or scheduled"), std::string::npos);
}

TEST(CompileErrors, OptionsAreCheckedAtTheLineOfCompile) {
  const auto fn = [](Tensor x) { return x; };
  for (const CompileOptions& options :
       {CompileOptions{.numerics = "exact"}, CompileOptions{.check_capture = -1},
        CompileOptions{.disable = {"no_such_pass"}}, CompileOptions{.machine = "toy"}}) {
    const std::string e = placed_error_of([&] { compile(fn, options); });
    EXPECT_TRUE(e.ends_with(str_cat("; at compiler/exec/compile_errors_test.cc:", __LINE__ - 1))) << e;
  }
}

TEST(CompileErrors, DebugPrintRunsEachStep) {
  auto step = compile([](Tensor x) {
    debug_print(x.sum(), "first");
    return debug_print(x * 2.0, "second");
  });
  ::testing::internal::CaptureStderr();
  step(ones({2}));
  step(ones({2}));
  const std::string text = ::testing::internal::GetCapturedStderr();
  size_t at = 0;
  for (const char* word : {"first", "second", "first", "second"}) {
    at = text.find(word, at);
    ASSERT_NE(at, std::string::npos) << text;
  }
}

TEST(CompileErrors, VerifyFindsAWrongKernel) {
  auto step = compile([&](Tensor x) { return dispatch(testing::unsteady_op(), {&x}); }, {.verify = true});
  std::string e = placed_error_of([&] { step(ones({2, 2})); });
  EXPECT_NE(e.find("verify: output 0 differs from the reference first at [1, 0]: got 1; need 0"), std::string::npos)
      << e;
}

// A table of one value needs no read, but its indices are still checked.
TEST(CompileErrors, IndicesIntoConstantTables) {
  const Tensor bad = Tensor::from_vector<int64_t>({0, 7}, {2});
  auto step = compile([](Tensor i) { return tanh(index_select(ones({3, 2}), 0, i)); });
  EXPECT_THROW(step(bad).to_vector<float>(), Error);
  EXPECT_EQ(step(Tensor::from_vector<int64_t>({0, 2}, {2})).shape(), (Shape{2, 2}));
}

}  // namespace
}  // namespace weft
