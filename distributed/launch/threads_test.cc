// A thread that reads and sets the cells of a step while it runs on a mesh.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "distributed/launch/compile.h"
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

}  // namespace
}  // namespace weft::dist
