// Results and gradients of the collectives on several ranks, and compiled graphs in which collectives start and end
// separately. All numbers are exact in f64, so the tests require equality.
#include "distributed/collectives.h"

#include <gtest/gtest.h>

#include "compiler/exec/compile.h"
#include "distributed/launch/world.h"
#include "framework/autodiff/grad.h"
#include "framework/base/testing/error_of.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

using testing::error_of;

// Multiples of 1/8, different on each rank.
Tensor values(int rank, const Shape& shape, int salt = 0) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i)
    v.push_back(static_cast<double>((i * 37 + rank * 101 + salt * 53) % 97 - 48) / 8);
  return Tensor::from_vector<double>(v, shape);
}

using Fn = std::function<Tensor(const Tensor& x, int rank)>;

// Compares the gradient of the weighted results' sum over ranks with differences, eagerly and captured.
void check_gradient(World& world, const std::vector<Shape>& shapes, const Fn& fn) {
  const int n = world.size();
  std::vector<std::vector<double>> x(n), eager(n), compiled(n);
  std::vector<double> loss(n);
  for (int r = 0; r < n; ++r) x[r] = values(r, shapes[r]).to_vector<double>();
  auto loss_of = [&](const Tensor& t, int r) {
    const Tensor y = fn(t, r);
    return sum(y * values(r, y.shape(), 7));
  };
  world.run([&](int r) {
    const Tensor t = Tensor::from_vector<double>(x[r], shapes[r]);
    auto gradient = [&](Tensor in) {
      const Tensor leaf = in.requires_grad();
      return grad(loss_of(leaf, r), {leaf})[0];
    };
    eager[r] = gradient(t).to_vector<double>();
    compiled[r] = compile(gradient)(t).to_vector<double>();
  });
  const double h = 1.0 / 64;
  for (int p = 0; p < n; ++p) {
    EXPECT_EQ(compiled[p], eager[p]);
    for (size_t i = 0; i < x[p].size(); ++i) {
      double side[2];
      for (int s : {0, 1}) {
        const double was = x[p][i];
        x[p][i] += s ? h : -h;
        world.run([&](int r) { loss[r] = loss_of(Tensor::from_vector<double>(x[r], shapes[r]), r).item<double>(); });
        x[p][i] = was;
        side[s] = 0;
        for (double l : loss) side[s] += l;
      }
      ASSERT_EQ(eager[p][i], (side[1] - side[0]) / (2 * h)) << "rank " << p << " element " << i;
    }
  }
}

TEST(Collectives, GradientsMatchDifferences) {
  World world(Mesh{{"tp", 2}});
  const std::vector<Shape> even(2, Shape{2, 4});
  for (const char* op : {"sum", "avg", "max", "min"})
    check_gradient(world, even, [&](const Tensor& x, int) { return all_reduce(x, "tp", op); });
  for (int64_t dim : {0, 1}) {
    check_gradient(world, even, [&](const Tensor& x, int) { return all_gather(x, "tp", dim); });
    for (const char* op : {"sum", "avg"})
      check_gradient(world, even, [&](const Tensor& x, int) { return reduce_scatter(x, "tp", dim, op); });
    check_gradient(world, even, [&](const Tensor& x, int) { return all_to_all(x, "tp", dim, 1 - dim); });
  }
  check_gradient(world, even, [](const Tensor& x, int) { return all_to_all_single(x, "tp"); });
  check_gradient(world, even, [](const Tensor& x, int) { return broadcast(x, "tp", 1); });
  check_gradient(world, even, [](const Tensor& x, int) { return shift_ranks(x, "tp"); });
}

TEST(Collectives, GradientsMatchDifferencesWithUnevenSizes) {
  World world(Mesh{{"tp", 3}});
  const std::vector<int64_t> sizes{2, 0, 1};
  check_gradient(world, {{2, 2}, {0, 2}, {1, 2}}, [&](const Tensor& x, int) { return all_gather(x, "tp", 0, sizes); });
  check_gradient(world, {{2, 3}, {2, 3}, {2, 3}},
                 [&](const Tensor& x, int) { return reduce_scatter(x, "tp", 1, "sum", sizes); });
  const std::vector<std::vector<int64_t>> counts{{1, 0, 2}, {0, 0, 1}, {2, 1, 0}};  // from, to
  auto received = [&](int r) { return std::vector<int64_t>{counts[0][r], counts[1][r], counts[2][r]}; };
  const std::vector<Shape> rows{{3, 2}, {1, 2}, {3, 2}};
  check_gradient(world, rows,
                 [&](const Tensor& x, int r) { return all_to_all_single(x, "tp", counts[r], received(r)); });
  check_gradient(world, rows, [&](const Tensor& x, int r) {
    return all_to_all_rows(x, Tensor::from_vector<int64_t>(counts[r], {3}),
                           Tensor::from_vector<int64_t>(received(r), {3}), "tp", 4);
  });
}

TEST(Collectives, SendAndReceiveWithGradients) {
  World world(Mesh{{"pp", 2}});
  world.run([](int r) {
    const Tensor x = values(0, {2, 3}).requires_grad();
    if (r == 0) {
      const Tensor receipt = send(x * 2.0, "pp", 1);
      EXPECT_EQ(receipt.item<double>(), 0);
      EXPECT_EQ(grad(receipt, {x})[0].to_vector<double>(), (values(1, {2, 3}) * 2.0).to_vector<double>());
    } else {
      const Tensor like = values(5, {2, 3}).requires_grad();
      const Tensor y = recv(like, "pp", 0);
      EXPECT_EQ(y.to_vector<double>(), (values(0, {2, 3}) * 2.0).to_vector<double>());
      const Tensor g = grad(sum(y * values(1, {2, 3})), {like})[0];
      EXPECT_EQ(g.to_vector<double>(), std::vector<double>(6, 0));
    }
  });
}

// Two products are split over tp between copy_to and reduce_from: value and gradients equal the whole products'.
TEST(Collectives, CopyToAndReduceFromMakeTheSandwich) {
  const Tensor x = values(0, {3, 4}), a = values(1, {4, 6}), b = values(2, {6, 5}), w = values(3, {3, 5});
  auto loss = [&](const Tensor& x, const Tensor& a, const Tensor& b) { return sum(matmul(matmul(x, a), b) * w); };
  const Tensor xr = x.requires_grad(), ar = a.requires_grad(), br = b.requires_grad();
  const auto want = grad(loss(xr, ar, br), {xr, ar, br});
  World world(Mesh{{"tp", 2}});
  world.run([&](int r) {
    const Tensor xl = x.requires_grad(), al = a.slice(1, 3 * r, 3 * r + 3).contiguous().requires_grad(),
                 bl = b.slice(0, 3 * r, 3 * r + 3).contiguous().requires_grad();
    const Tensor y = reduce_from(matmul(matmul(copy_to(xl, "tp"), al), bl), "tp");
    EXPECT_EQ(y.to_vector<double>(), matmul(matmul(x, a), b).to_vector<double>());
    const auto got = grad(sum(y * w), {xl, al, bl});
    EXPECT_EQ(got[0].to_vector<double>(), want[0].to_vector<double>());
    EXPECT_EQ(got[1].to_vector<double>(), want[1].slice(1, 3 * r, 3 * r + 3).to_vector<double>());
    EXPECT_EQ(got[2].to_vector<double>(), want[2].slice(0, 3 * r, 3 * r + 3).to_vector<double>());
  });
}

TEST(Collectives, RankCoordinateIsReadWhenItRuns) {
  World world(Mesh{{"dp", 2}, {"tp", 2}});
  world.run([&](int r) {
    auto fn = compile([](const Tensor& x) { return x + rank_coordinate("tp") + rank_coordinate("dp") * 10; });
    for (int again = 0; again < 2; ++again)
      EXPECT_EQ(fn(Tensor::from_vector<int64_t>({100}, {1})).item<int64_t>(), 100 + r % 2 + 10 * (r / 2));
  });
}

TEST(Collectives, ErrorsAreClear) {
  const Tensor x = values(0, {3, 4});
  EXPECT_NE(error_of([&] { all_reduce(x, "tp"); }).find("all_reduce: this thread is not a rank"), std::string::npos);
  World world(Mesh{{"tp", 2}});
  auto on_ranks = [&](const std::function<void(int)>& fn) { return error_of([&] { world.run(fn); }); };
  EXPECT_NE(on_ranks([&](int) { reduce_scatter(x, "tp"); }).find("cannot be split into 2 equal parts"),
            std::string::npos);
  EXPECT_NE(on_ranks([&](int) { all_reduce(x, "ep"); }).find("ep"), std::string::npos);
  EXPECT_NE(on_ranks([&](int) { all_gather(x, "tp", 2); }).find("all_gather"), std::string::npos);
  EXPECT_NE(on_ranks([&](int r) { all_gather(values(0, {r + 1, 2}), "tp"); }).find("expects"), std::string::npos);
  const Tensor two = Tensor::from_vector<int64_t>({1, 1}, {2});
  EXPECT_NE(on_ranks([&](int) { all_to_all_rows(x, two, two, "tp", 1); }).find("receives 2 rows; the bound is 1"),
            std::string::npos);
  EXPECT_NE(on_ranks([&](int) {
              dispatch(all_gather_op, {&x}, {{"axes", std::string("tp")}, {"dim", int64_t{0}}, {"parts", int64_t{3}}});
            }).find("parts is 3; tp has 2 ranks"),
            std::string::npos);
}

// ---- started and ended separately ----

Tensor begin(const OpDef& op, const Tensor& x, Attrs attrs, int64_t site) {
  return dispatch(op, {&x}, attrs.with("site", site));
}
Tensor wait(const Tensor& y, const Tensor& x, int64_t site) {
  return dispatch(collective_wait_op, {&y, &x}, {{"site", site}});
}

std::vector<Tensor> overlapped(std::span<const Tensor> in) {
  const std::string tp = "tp";
  const Tensor x = in[0] * 2.0;
  const Tensor sum_y = begin(all_reduce_start_op, x, {{"axes", tp}, {"op", std::string("sum")}}, 1);
  const Tensor all_y = begin(all_gather_start_op, in[0], {{"axes", tp}, {"dim", int64_t{1}}, {"parts", int64_t{2}}}, 2);
  const Tensor part_y =
      begin(reduce_scatter_start_op, x,
            {{"axes", tp}, {"op", std::string("sum")}, {"dim", int64_t{1}}, {"parts", int64_t{2}}}, 3);
  const Tensor other = matmul(in[0].t(), x);  // meanwhile
  const Tensor s = wait(sum_y, x, 1), a = wait(all_y, in[0], 2), p = wait(part_y, x, 3);
  const Tensor moved =
      begin(all_to_all_start_op, other,
            {{"axes", tp}, {"split_dim", int64_t{0}}, {"concat_dim", int64_t{1}}, {"parts", int64_t{2}}}, 4);
  const Tensor ring = begin(permute_ranks_start_op, other, {{"axes", tp}, {"shift", int64_t{1}}}, 5);
  const Tensor meanwhile = s + 1.0;
  const Tensor r = wait(ring, other, 5), m = wait(moved, other, 4);
  return {s, a * 3.0, p.t(), r, m.reshape({-1}), meanwhile, a};
}

std::vector<Tensor> at_once(std::span<const Tensor> in) {
  const Tensor x = in[0] * 2.0, other = matmul(in[0].t(), x);
  const Tensor s = all_reduce(x, "tp"), a = all_gather(in[0], "tp", 1), p = reduce_scatter(x, "tp", 1);
  return {s, a * 3.0, p.t(), shift_ranks(other, "tp"), all_to_all(other, "tp", 0, 1).reshape({-1}), s + 1.0, a};
}

TEST(Collectives, BegunAndEndedGivesTheSame) {
  World world(Mesh{{"tp", 2}});
  for (int64_t n : {4, 300})
    world.run([&](int r) {
      auto fast = compile([](std::vector<Tensor> in) { return overlapped(in); });
      auto plain = compile([](std::vector<Tensor> in) { return at_once(in); });
      for (int step = 0; step < 6; ++step) {
        const std::vector<Tensor> x{values(r, {n, n}, step)};
        const auto want = at_once(x);
        for (const auto& got : {overlapped(x), fast(x), plain(x)}) {
          ASSERT_EQ(got.size(), want.size());
          for (size_t i = 0; i < got.size(); ++i)
            EXPECT_EQ(got[i].to_vector<double>(), want[i].to_vector<double>()) << "result " << i << " step " << step;
        }
      }
    });
}

// A weight's new value depends on a reduction of its old value, and is written in place while other ranks still read
// it.
TEST(Collectives, CellsAreNotOverwrittenWhileTheyAreSent) {
  World world(Mesh{{"tp", 2}});
  world.run([](int r) {
    Parameter w(values(r, {64, 64}));
    auto step = compile([&](const Tensor& x) {
      const Tensor old = w.value().detach();
      const Tensor y = begin(all_reduce_start_op, old, {{"axes", std::string("tp")}, {"op", std::string("sum")}}, 9);
      const Tensor busy = matmul(x, x);
      w.set(old * 0.5);
      return wait(y, old, 9) + busy;
    });
    const Tensor zero = values(0, {64, 64}) * 0.0, both = values(0, {64, 64}) + values(1, {64, 64});
    double scale = 1;
    for (int i = 0; i < 4; ++i, scale /= 2)
      EXPECT_EQ(step(zero).to_vector<double>(), (both * scale).to_vector<double>()) << i;
  });
}

TEST(Collectives, AFailedRankLeavesNoneBehindInCompiledSteps) {
  World world(Mesh{{"tp", 2}});
  for (int again = 0; again < 2; ++again) {
    const std::string text = error_of([&] {
      world.run([&](int r) {
        auto fn = compile([&](const Tensor& x) {
          const Tensor y = begin(all_reduce_start_op, x, {{"axes", std::string("tp")}, {"op", std::string("sum")}}, 1);
          const Tensor bad = index_select(x, 0, Tensor::from_vector<int64_t>({r == 1 ? 999 : 0}, {1}));
          return wait(y, x, 1) + bad;
        });
        fn(values(r, {200, 200}));
      });
    });
    EXPECT_NE(text.find("rank 1: "), std::string::npos) << text;
    EXPECT_NE(text.find("999"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace weft::dist
