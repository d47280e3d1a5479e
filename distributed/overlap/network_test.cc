// Collectives over the dimensions of a mesh; collective_seconds_test.cc has their times.
#include "distributed/overlap/network.h"

#include <gtest/gtest.h>

namespace weft::dist {
namespace {

// Ranks 0 to 7 are on one node: dp crosses nodes, tp does not.
TEST(Network, MeshDimensionsReachTheirNodes) {
  const Machine& m = machine_preset("h100-sxm");
  const Mesh mesh = Mesh::parse("dp4,tp8");
  EXPECT_EQ(nodes_of(mesh, "tp", m), 1);
  EXPECT_EQ(nodes_of(mesh, "dp", m), 4);
  EXPECT_EQ(nodes_of(mesh, "dp,tp", m), 4);
  EXPECT_EQ(collective_seconds(Collective::kAllReduce, 1e8, mesh, "dp,tp", m),
            collective_seconds(Collective::kAllReduce, 1e8, 32, 4, m));
  // Without measured points, a step of a ring is one hop over one link.
  const Machine& cpu = machine_preset("cpu");
  const NetworkLink link = link_of(mesh, "tp", cpu);
  EXPECT_DOUBLE_EQ(link.latency, cpu.links.inner_hop);
  EXPECT_EQ(link.bytes_per_second, cpu.links.inner_bus);
}

}  // namespace
}  // namespace weft::dist
