// FakeGpuTest: a test on a fake GPU. It fails if the driver was misused or anything of it leaked.
#pragma once
#include <gtest/gtest.h>

#include "framework/cuda/testing/fake_driver.h"

namespace weft::cuda::testing {

class FakeGpuTest : public ::testing::Test {
 protected:
  explicit FakeGpuTest(FakeGpu gpu = {}, int count = 1) : fake(gpu, count), in_place(std::in_place, fake.table()) {}

  /// Destroys everything that uses the driver, then checks for misuse and leaks.
  void TearDown() override {
    in_place.reset();
    EXPECT_EQ(joined(fake.take_complaints()), "");
    EXPECT_EQ(fake.leaks(), "");
  }

  static std::string joined(const std::vector<std::string>& lines) {
    std::string all;
    for (const std::string& l : lines) all += (all.empty() ? "" : "\n") + l;
    return all;
  }
  /// The one complaint since the last call.
  std::string complaint() { return joined(fake.take_complaints()); }

  FakeDriver fake;
  std::optional<ScopedDriver> in_place;
};

/// The sentence of the weft::Error that `f` throws, or "no error".
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace weft::cuda::testing
