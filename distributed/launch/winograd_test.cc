// Convolutions by Winograd's algorithm on meshes: for small integers all sums are exact, so the results equal one
// device's.
#include <gtest/gtest.h>

#include "distributed/launch/compile.h"
#include "framework/testing/values.h"
#include "weft.h"

namespace weft::dist {
namespace {

struct Net {
  Parameter w;
  explicit Net(const Tensor& kernels) : w(kernels, "w") {}
  std::vector<Tensor> operator()(const Tensor& x) const {
    const Tensor y = conv2d(x, w, Tensor(), 1, 1);
    const std::vector<Tensor> g = grad(sum(y * y), std::vector<Parameter>{w});
    return {y, g[0]};
  }
};

class WinogradOn : public ::testing::TestWithParam<const char*> {};

TEST_P(WinogradOn, MeshesIsThatOfOneDevice) {
  testing::Random random(1);
  const auto whole = [&](const Shape& s) { return testing::random_tensor(kInt64, s, random, -1, 1).to(kFloat32); };
  const Tensor x = whole({4, 32, 6, 5}), kernels = whole({64, 32, 3, 3});
  const Net one(kernels), many(kernels);
  const Mesh mesh = Mesh::parse(GetParam());
  auto alone = weft::compile([&](Tensor v) { return one(v); });
  auto spread = dist::compile([&](Tensor v) { return many(v); },
                              {.mesh = mesh, .plan = mesh.find("tp") ? Plan{{"w", {{"tp", Shard(0)}}}} : Plan{}});
  const std::vector<Tensor> want = alone(x), got = spread(x);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(equal(got[i], want[i])) << i;
  const std::string text = spread.graph("partitioned").to_string();
  EXPECT_NE(text.find("winograd %"), text.npos) << text;
  EXPECT_NE(text.find("winograd_weight_gradient %"), text.npos) << text;
}
INSTANTIATE_TEST_SUITE_P(All, WinogradOn, ::testing::Values("dp2", "tp2", "dp2,tp2"));

}  // namespace
}  // namespace weft::dist
