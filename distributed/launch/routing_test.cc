// A model may choose experts by constants, without a router. Each rank then sorts the choices of its own tokens. The
// results equal the results of one device.
#include <gtest/gtest.h>

#include "distributed/launch/compile.h"
#include "weft.h"

namespace weft::dist {
namespace {

constexpr int64_t kBatch = 4, kTime = 4, kDim = 8, kExperts = 4, kTopK = 2, kTokens = kBatch * kTime;

struct Case {
  const char* name;
  Tensor (*choices)(const Tensor& captured);  // i64 [tokens, top_k], from a tensor of this type
};
const Case kCases[] = {
    {"captured", [](const Tensor& captured) { return captured; }},
    {"iota",
     [](const Tensor&) {
       return remainder(arange(kTokens * kTopK), kExperts).reshape({kTokens, kTopK});
     }},
    {"computed as a whole", [](const Tensor& captured) { return remainder(cumsum(captured, 0), kExperts); }},
};

struct Step {
  const Case& c;
  Tensor captured = minimum(remainder(arange(kTokens * kTopK) * 3, 5), kExperts - 1).reshape({kTokens, kTopK});
  Parameter w{reshape(sin(arange(kExperts * kDim * kDim)), {kExperts, kDim, kDim}), "w"};

  // x [batch, time, dim].
  std::vector<Tensor> operator()(const Tensor& x) const {
    const Tensor x_TD = reshape(x, {kTokens, kDim});
    const ExpertOrder order = sort_by_expert(c.choices(captured), kExperts);
    const Tensor h = grouped_matmul(dispatch_tokens(x_TD, order), w.value(), order.offsets);
    const Tensor y = combine_tokens(h * h, order, sigmoid(slice(x_TD, 1, 0, kTopK)));
    const Tensor loss = mean(square(y));
    return {y, loss, order.counts, grad(loss, std::vector<Parameter>{w})[0]};
  }
};

class ConstantRouting : public ::testing::TestWithParam<const char*> {};

TEST_P(ConstantRouting, HasTheBitsOfOneDevice) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Step one{c}, many{c};
    auto on_one = weft::compile([&](Tensor x) { return one(x); }, {.verify_numerics = true});
    auto on_mesh =
        dist::compile([&](Tensor x) { return many(x); }, {.mesh = Mesh::parse(GetParam()), .verify_numerics = true});
    const Tensor x = cos(arange(kTokens * kDim)).reshape({kBatch, kTime, kDim});
    const std::vector<Tensor> want = on_one(x), got = on_mesh(x);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(equal(got[i], want[i])) << "result " << i;
    EXPECT_GT(sum(abs(want[3])).item<double>(), 0);
  }
}
INSTANTIATE_TEST_SUITE_P(Meshes, ConstantRouting,
                         ::testing::Values("dp2", "fsdp2", "ep2", "dp2,ep2", "dp2,cp2", "cp2,ep2"));

}  // namespace
}  // namespace weft::dist
