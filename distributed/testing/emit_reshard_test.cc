// Runs emit()'s code for a reshard with real collectives on thread ranks: each rank ends with its part.
#include <gtest/gtest.h>

#include <mutex>

#include "distributed/launch/world.h"
#include "distributed/propagate/emit.h"
#include "distributed/testing/sharded_call.h"
#include "distributed/testing/specs.h"
#include "framework/dispatch/interpreter.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using dist::Mesh;
using dist::Spec;

// A cell with placement `from` becomes a result with placement `to`.
struct Move {
  Graph graph;
  dist::Decision decision;
  dist::Pins pins;
};
Move moved(const Tensor& whole, const Spec& from, const Spec& to) {
  Move m;
  auto cell = make_ref<Cell>();
  cell->name = "x";
  cell->type = whole.type();
  m.graph.outputs.push_back(m.graph.add_cell(cell));
  dist::NodeChoice choice;
  choice.out.push_back(from);
  choice.settled.push_back(from);
  m.decision.nodes.push_back(choice);
  m.decision.cells.push_back({.rest = from, .use = from, .update = from});
  m.decision.outputs.push_back(to);
  m.decision.gradient_of.push_back(-1);
  m.pins.cells.resize(1);
  return m;
}

void some_pairs(const Mesh& mesh, const Shape& shape, size_t stride, bool maxima) {
  const Tensor whole = arange(shape.numel()).reshape(shape).to(kFloat64);
  const std::vector<Spec> all = specs(mesh, shape, maxima);
  dist::World world(mesh);
  std::mutex lock;
  std::vector<std::vector<Tensor>> results(static_cast<size_t>(mesh.size()));
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t k = 0; k < all.size() * all.size(); k += stride) pairs.emplace_back(k / all.size(), k % all.size());
  world.run([&](int rank) {
    for (const auto& [i, j] : pairs) {
      const Move m = moved(whole, all[i], all[j]);
      const Ref<Graph> local = dist::emit(mesh, m.graph, m.decision, m.pins, rank).graph;
      local->cells[0]->value = whole_part(mesh, all[i], whole, rank);
      const Tensor y = interpret(*local, {})[0].to(Device::cpu());
      const std::lock_guard<std::mutex> guard(lock);
      results[static_cast<size_t>(rank)].push_back(y);
    }
  });
  for (size_t k = 0; k < pairs.size(); ++k) {
    std::vector<Tensor> parts;
    for (const auto& r : results) parts.push_back(r[k]);
    EXPECT_EQ(difference(mesh, all[pairs[k].second], parts, whole, true), "")
        << to_string(mesh, all[pairs[k].first]) << " to " << to_string(mesh, all[pairs[k].second]);
  }
}

TEST(EmitReshard, TwoByTwoByTwo) { some_pairs(Mesh({{"a", 2}, {"b", 2}, {"c", 2}}), {8, 4}, 101, false); }
TEST(EmitReshard, FourByTwoUneven) { some_pairs(Mesh({{"a", 4}, {"b", 2}}), {6, 5}, 17, false); }
TEST(EmitReshard, TwoByThree) { some_pairs(Mesh({{"a", 2}, {"b", 3}}), {12, 6}, 3, true); }
TEST(EmitReshard, TwoByThreeUneven) { some_pairs(Mesh({{"a", 2}, {"b", 3}}), {7, 5}, 1, true); }

}  // namespace
}  // namespace weft::testing
