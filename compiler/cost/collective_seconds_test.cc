// The times of collectives against published and computed figures, by their numbers in the list of vectors.
#include "compiler/cost/collective_seconds.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/error.h"

namespace weft {
namespace {

constexpr double kMiB = 1024.0 * 1024, kGiB = 1024 * kMiB;

// A ring: its n-1 steps (twice for an all-reduce), each after `hop` seconds, over links of `bus` bytes per second.
double ring_seconds(Collective kind, double bytes, double ranks, double bus, double hop = 0) {
  const double steps = (ranks - 1) * (kind == Collective::kAllReduce ? 2 : 1);
  return bytes * bus_factor(kind, ranks) / bus + steps * hop;
}

TEST(Rings, V14AnAllReduceOfOneGiB) {
  EXPECT_NEAR(ring_seconds(Collective::kAllReduce, kGiB, 8, 480e9), 3.915e-3, 0.0005e-3);
}

// DTensor's model of an all-gather: 6.6 us and 0.6 for each hop, 87.7 GB/s (GiB of 64 MiB).
TEST(Rings, V36DTensorsModel) {
  EXPECT_NEAR(6.6e-6 + ring_seconds(Collective::kAllGather, 0.0625, 8, 87.7, 0.6e-6), 634.4e-6, 0.05e-6);
  // The H100's table: 64 MiB / 394 GB/s and 30 us.
  EXPECT_NEAR(collective_seconds(Collective::kAllGather, 64 * kMiB, 8, 1, machine_preset("h100-sxm")), 200e-6, 1e-6);
}

// A reduction of the products of a 70B block over tp 8, within a node and across.
TEST(Rings, V40TensorParallelism) {
  const double block = 8192.0 * 8192 * 2;
  EXPECT_NEAR(ring_seconds(Collective::kAllReduce, block, 8, 480e9), 0.49e-3, 0.005e-3);
  EXPECT_NEAR(ring_seconds(Collective::kAllReduce, block, 8, 50e9), 4.7e-3, 0.05e-3);
}

TEST(Rings, BytesOfALink) {
  // Data parallelism: an all-reduce of 2-byte gradients moves about twice their bytes; 1e9 parameters, 4 GB.
  EXPECT_NEAR(2e9 * bus_factor(Collective::kAllReduce, 1024), 4e9, 0.005e9);
  // An all-gather and a reduce-scatter together move the bytes of an all-reduce: sequence parallelism costs no bytes.
  for (double n : {2.0, 8.0, 72.0})
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllGather, n) + bus_factor(Collective::kReduceScatter, n),
                     bus_factor(Collective::kAllReduce, n));
}

// Two trees, each for half of the bytes: the bandwidth of a ring of many ranks, with log2 n hops each way.
TEST(Trees, FewHops) {
  EXPECT_NEAR(tree_seconds(0, 1024, 50e9, 5e-6), 2 * 10 * 5e-6, 1e-12);
  EXPECT_LT(tree_seconds(1e6, 1024, 50e9, 5e-6), ring_seconds(Collective::kAllReduce, 1e6, 1024, 50e9, 5e-6));
}

TEST(H100, V15ToV17ReachesWhatWasMeasured) {
  const Machine& m = machine_preset("h100-sxm");
  EXPECT_NEAR(bus_bandwidth(Collective::kAllReduce, 8, 1, m), 467e9, 0.5e9);
  EXPECT_NEAR(bus_bandwidth(Collective::kAllReduce, 8, 1, m) / 480e9, 1, 0.03);
  const double many = bus_bandwidth(Collective::kAllReduce, 128, 16, m);
  EXPECT_NEAR(many, 334e9, 1e9);
  EXPECT_GT(many, 320e9);
  EXPECT_LT(many, 350e9);
  EXPECT_NEAR(m.bytes, 3e12, 0);
  EXPECT_NEAR(m.products_of(kBFloat16), 989.5e12, 0);  // dense
}

TEST(Machines, TimesAreSane) {
  for (const std::string& name : machine_names()) {
    const Machine& m = machine_preset(name);
    for (Collective kind : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                            Collective::kAllToAll, Collective::kPermute, Collective::kBroadcast}) {
      EXPECT_EQ(collective_seconds(kind, 1e6, 1, 1, m), 0);
      double before = 0;
      for (double bytes : {0.0, 1e3, 1e6, 1e9}) {
        const double s = collective_seconds(kind, bytes, 8, 1, m);
        EXPECT_TRUE(std::isfinite(s) && s > before) << name << " " << to_string_view(kind) << " " << bytes;
        before = s;
      }
      for (int nodes : {2, 3, 5, 64, 500}) {
        EXPECT_GT(collective_seconds(kind, 1e8, 8 * nodes, nodes, m), 0) << name;
        // One rank of each node has an eighth of its network, if the links inside the node are as fast as all of it.
        if (m.links.node == 8 && m.links.inner_bus >= 8 * m.links.outer_bus * m.links.ramp &&
            kind != Collective::kAllToAll) {
          EXPECT_GE(collective_seconds(kind, 1e9, nodes, nodes, m), collective_seconds(kind, 1e9, 8 * nodes, nodes, m))
              << name << " " << nodes;
        }
      }
    }
  }
  EXPECT_THROW(machine_preset("abacus"), Error);
}

}  // namespace
}  // namespace weft
