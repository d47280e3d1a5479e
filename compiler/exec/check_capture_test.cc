// CompileOptions::check_capture: host values that a capture fixed are found when they change.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::same_bits;

Tensor ramp() { return Tensor::from_vector({1, 2, 3, 4}, {4}); }

std::string at(int line) { return str_cat(" at compiler/exec/check_capture_test.cc:", line); }

// The error of a call after change(1), for a function that is checked at each call. change(0) restores the host value.
template <class Fn>
std::string frozen(const Fn& fn, const std::function<void(int)>& change) {
  auto step = compile(fn, {.check_capture = 1});
  change(0);
  step(ramp());
  step(ramp());
  change(1);
  const std::string e = error_of([&] { step(ramp()); });
  change(0);
  step(ramp());
  EXPECT_EQ(step.stats().captures, 1);
  return e;
}

TEST(CheckCapture, NamesTheNumberThatChanged) {
  double beta = 0;
  std::string e = frozen([&](Tensor x) { return x * beta; }, [&](int k) { beta = 0.5 + k; });
  EXPECT_EQ(e,
            str_cat("compile: check_capture: the host number", at(__LINE__ - 2),
                    " was 0.5 when the function was captured and is 1.5 now; values that the host decides or computes "
                    "are fixed at capture: pass it as an argument (a call may pass a number where the function takes a "
                    "Tensor) or keep it in a Buffer"));
  // As an optimiser's set_lr(value) inside the step.
  Buffer lr(full({}, 0.0), "lr");
  double value = 0;
  e = frozen(
      [&](Tensor x) {
        lr.set(full({}, value));
        return x * lr;
      },
      [&](int k) { value = k; });
  EXPECT_NE(e.find(str_cat("the host number", at(__LINE__ - 4), " was 0 when the function was captured and is 1 now")),
            std::string::npos)
      << e;
}

TEST(CheckCapture, NamesOtherHostValues) {
  int64_t n = 0;
  std::string e = frozen([&](Tensor x) { return x.slice(0, n, n + 2); }, [&](int k) { n = k; });
  EXPECT_NE(e.find(str_cat(" of slice", at(__LINE__ - 1), " was ")), std::string::npos) << e;
  bool twice = false;
  e = frozen([&](Tensor x) { return twice ? x + x : x * x; }, [&](int k) { twice = k; });
  EXPECT_NE(e.find(str_cat("the function called mul", at(__LINE__ - 1), " when it was captured and now calls add")),
            std::string::npos)
      << e;
  e = frozen([&](Tensor x) { return twice ? exp(x) + 1.0 : exp(x); }, [&](int k) { twice = k; });
  EXPECT_NE(e.find("the function now also calls"), std::string::npos) << e;
  float weight = 0;
  e = frozen([&](Tensor x) { return x * Tensor::from_vector({weight}, {1}); },
             [&](int k) { weight = static_cast<float>(k); });
  EXPECT_NE(e.find("a tensor f32[1] that the function closes over or makes from host values has other values than when "
                   "the function was captured; it is read by "),
            std::string::npos)
      << e;
  double inside = 0;
  e = frozen([&](Tensor x) { return checkpoint([&](Tensor y) { return exp(y) * inside; }, x); },
             [&](int k) { inside = k; });
  EXPECT_NE(e.find("the host number"), std::string::npos) << e;
  Parameter a(ones({4}), "a"), b(ones({4}), "b");
  e = frozen([&](Tensor x) { return x * (twice ? a : b); }, [&](int k) { twice = k; });
  EXPECT_NE(
      e.find(str_cat("other parameters or buffers than when it was captured: 'a' f32[4] instead of 'b' f32[4]; it "
                     "is read by mul",
                     at(__LINE__ - 4))),
      std::string::npos)
      << e;
}

TEST(CheckCapture, IsSilentIfNothingChanges) {
  auto make = [](const CompileOptions& options) {
    manual_seed(3);
    const Parameter w(ones({4}), "w");
    const Tensor closed = ramp();
    return compile(
        [=](Tensor x, Tensor beta) {
          x = where(x > 100.0, std::nan(""), x);
          const Tensor loss = (dropout(x, 0.5) * w * closed * Tensor::from_vector({2, 1, 2, 1}, {4}) * beta).sum();
          w.set(w.value() - grad(loss, std::vector<Parameter>{w})[0] * 0.125);
          return loss;
        },
        options);
  };
  auto plain = make({}), checked = make({.check_capture = 2});
  for (int i = 0; i < 6; ++i) {
    manual_seed(static_cast<uint64_t>(i));
    const Tensor want = plain(ramp(), 0.5 * i);
    manual_seed(static_cast<uint64_t>(i));
    EXPECT_TRUE(same_bits(checked(ramp(), 0.5 * i), want)) << i;
  }
  EXPECT_EQ(checked.stats().captures, 1);
}

TEST(CheckCapture, RunsEverySoManyCalls) {
  int traced = 0;
  auto step = compile(
      [&](Tensor x) {
        ++traced;
        return x + 1.0;
      },
      {.check_capture = 3});
  for (int i = 0; i < 10; ++i) step(ramp());
  EXPECT_EQ(traced, 1 + 3);  // calls 4, 7 and 10
  EXPECT_EQ(error_of([] { compile([](Tensor x) { return x; }, {.check_capture = -1}); }),
            "compile: check_capture is -1; need calls >= 0");
}

}  // namespace
}  // namespace weft
