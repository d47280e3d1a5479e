#include "distributed/diloco/outer_state.h"

#include <gtest/gtest.h>

#include "distributed/diloco/exchange.h"
#include "distributed/launch/compile.h"
#include "weft.h"

namespace weft::dist {
namespace {

struct Net : nn::Module {
  nn::Linear up, down;
  Net() : up(16, 48), down(48, 16) { register_module("up", up), register_module("down", down); }
  Tensor loss(const Tensor& x) const { return mse_loss(down(gelu(up(x))), x); }
};

// Both ranks of tp2 have the bias of `down`, beside different shards of the weights. Its copies are quantised alike.
TEST(OuterState, CopiesOfAParameterStayEqual) {
  for (const OuterWire wire : {OuterWire::kF32, OuterWire::kInt8, OuterWire::kInt4})
    for (const int64_t fragments : {1, 2}) {
      manual_seed(7);
      const Net net;
      optim::SGD opt(net.parameters(), 0.1);
      auto step = dist::compile(
          [&](Tensor x) {
            const Tensor loss = net.loss(x);
            opt.minimize(loss);
            return loss;
          },
          {.mesh = Mesh::parse("tp2")});
      const Tensor x = randn({8, 16});
      step(x);
      const OuterOptions options{.every = 2, .fragments = fragments, .steps = 4, .wire = wire};
      OuterState outer(options, net.named_cells());
      outer.bind(shards_of(step, /*made=*/true), {0, 1}, /*made=*/true);
      for (int64_t e = 0; e < options.exchanges(); ++e) {
        step(x);
        outer.bind(shards_of(step, true), {0, 1}, true);
        std::vector<std::vector<float>> averages;
        for (const std::vector<float>& d : outer.gradients(e))
          averages.push_back(average_of(wire, std::vector{d, d}, std::vector<int64_t>{1, 2}));
        outer.move_anchors(e, averages);
        outer.move_parameters(e);
      }
      int copies = 0;
      for (const auto& [cell, sharded] : shards_of(step, true))
        for (const std::vector<int>& group : sharded->copies())
          for (size_t i = 1; i < group.size(); ++i, ++copies)
            EXPECT_EQ(sharded->shards[group[0]]->value.to_vector<float>(),
                      sharded->shards[group[i]]->value.to_vector<float>())
                << cell->name;
      EXPECT_GT(copies, 0);
    }
}

// The whole outer gradients of a fragment, on this mesh, by exchange. An empty mesh: one device.
std::vector<std::vector<float>> whole_gradients(const std::string& mesh, const OuterOptions& options) {
  manual_seed(7);
  const Net net;
  optim::SGD opt(net.parameters(), 0.1);
  auto step = dist::compile(
      [&](Tensor x) {
        const Tensor loss = net.loss(x);
        opt.minimize(loss);
        return loss;
      },
      {.mesh = mesh.empty() ? Mesh() : Mesh::parse(mesh)});
  const Tensor x = randn({8, 16});
  OuterState outer(options, net.named_cells());
  std::vector<std::vector<float>> all;
  for (int64_t e = -1; e < options.exchanges(); ++e) {
    step.prepare(x);
    outer.bind(shards_of(step, true), mesh.empty() ? std::vector{0} : std::vector{0, 1, 2, 3}, true);
    if (e >= 0) {
      const std::vector<std::vector<float>> d = outer.gradients(e);
      all.push_back(outer.whole(e, d));
      EXPECT_EQ(outer.by_rank(e, all.back()), d);
    }
    for (const auto& [name, cell] : net.named_cells()) cell.set(cell.value() * 0.75 + 0.125);
  }
  return all;
}

TEST(OuterState, WholeFragmentsAreEqualOnAllMeshes) {
  for (const OuterWire wire : {OuterWire::kF32, OuterWire::kInt8})
    for (const int64_t fragments : {1, 3}) {
      const OuterOptions options{.every = 3, .fragments = fragments, .steps = 3, .wire = wire};
      const auto expected = whole_gradients("", options);
      ASSERT_EQ(std::ssize(expected), fragments);
      for (const char* mesh : {"tp4", "fsdp4", "dp4", "fsdp2,tp2"}) EXPECT_EQ(whole_gradients(mesh, options), expected);
    }
}

}  // namespace
}  // namespace weft::dist
