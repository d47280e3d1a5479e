// Functions that a program defines (CustomOp, kernel(), scan, while_loop, vmap, custom_grad) have the bits of one
// device on every mesh.
#include <gtest/gtest.h>

#include <cmath>

#include "distributed/launch/compile.h"
#include "weft.h"

namespace weft::dist {
namespace {

constexpr int64_t kRows = 8, kColumns = 6;

// The greatest element of each row, [b, m] -> [b].
const CustomOp& row_max() {
  static const CustomOp op{{
      .name = "test.mesh_row_max",
      .infer =
          [](const InferCall& c) {
            const TensorType& x = c.in[0];
            WEFT_CHECK(x.dtype == kFloat32 && x.shape.size() == 2, c.op.name, ": got ", x, "; need f32 [b, m]");
            return Types{{x.dtype, x.device, Shape{x.shape[0]}}};
          },
      .vjp =
          [](const VjpCall& c) {
            return Grads{where(c.in[0] == unsqueeze(c.out[0], 1), unsqueeze(c.grad[0], 1), 0.0)};
          },
      .dims = [](const Attrs&, auto in, auto out) { return DimMap::parse("b m^ -> b", in, out); },
      .kernel =
          [](const KernelCall& c) {
            const int64_t rows = c.in[0].shape[0], columns = c.in[0].shape[1];
            for (int64_t r = 0; r < rows; ++r) {
              float most = -INFINITY;
              for (int64_t i = 0; i < columns; ++i) most = std::fmax(most, c.in[0].as<float>()[r * columns + i]);
              c.out[0].as<float>()[r] = most;
            }
          },
  }};
  return op;
}

struct Case {
  const char* name;
  Tensor (*fn)(const Tensor& x, const Tensor& w);  // x [rows, columns], w [columns, columns] -> f32[rows, ...]
};
const Case kCases[] = {
    {"CustomOp", [](const Tensor& x, const Tensor& w) { return row_max()({matmul(x, w)}); }},
    {"kernel",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = matmul(x, w);
       return kernel([&](Index i, Index j) { return y(i, j) * y(i, kColumns - 1 - j) + 0.5; }, {x.size(0), kColumns});
     }},
    {"scan",
     [](const Tensor& x, const Tensor& w) {
       const auto [all, last] = scan(
           [&](const Tensor& h, const Tensor& t) {
             const Tensor next = tanh(matmul(h, w) + t);
             return std::pair{next, next};
           },
           x, stack({x * 0.5, x * 0.25, x}));
       return last + sum(all, 0);
     }},
    {"while_loop",
     [](const Tensor& x, const Tensor& w) {
       return while_loop([](const Tensor& v) { return sum(square(v)) < 500.0; },
                         [&](const Tensor& v) { return v * 1.5 + tanh(matmul(v, w)); }, x, {.max_iterations = 9});
     }},
    {"vmap",
     [](const Tensor& x, const Tensor& w) {
       return vmap([&](const Tensor& row) { return softmax(matmul(unsqueeze(row, 0), w), -1)[0] * sum(row); })(x);
     }},
    {"custom_grad",
     [](const Tensor& x, const Tensor& w) {
       const auto round_through =
           custom_grad([](Tensor v) { return round(v); }, [](Tensor, Tensor, Tensor dy) { return dy; });
       return round_through(matmul(x, w) * 4.0);
     }},
};

struct Step {
  const Case& c;
  Parameter w{reshape(sin(arange(kColumns * kColumns)), {kColumns, kColumns}), "w"};

  std::vector<Tensor> operator()(const Tensor& x) const {
    const Tensor y = c.fn(x, w.value());
    const Tensor loss = mean(square(y));
    return {y, loss, grad(loss, std::vector<Parameter>{w})[0]};
  }
};

class OwnFunctions : public ::testing::TestWithParam<const char*> {};

TEST_P(OwnFunctions, HaveTheBitsOfOneDevice) {
  const Mesh mesh = Mesh::parse(GetParam());
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    CompileOptions alone{.verify_numerics = true};
    CompileOptions spread{.mesh = mesh, .plan = mesh.find("tp") ? Plan{{"w", {{"tp", Shard(1)}}}} : Plan{}};
    spread.verify_numerics = true;
    const Step one{c}, many{c};
    auto on_one = weft::compile([&](Tensor x) { return one(x); }, alone);
    auto on_mesh = dist::compile([&](Tensor x) { return many(x); }, spread);
    const Tensor x = cos(arange(kRows * kColumns)).reshape({kRows, kColumns});
    const std::vector<Tensor> want = on_one(x), got = on_mesh(x);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(equal(got[i], want[i])) << "result " << i;
    EXPECT_GT(sum(abs(want[2])).item<double>(), 0);
  }
}
INSTANTIATE_TEST_SUITE_P(Meshes, OwnFunctions, ::testing::Values("dp2", "fsdp2", "tp2", "dp2,tp2"));

}  // namespace
}  // namespace weft::dist
