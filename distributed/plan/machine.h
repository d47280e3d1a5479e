// Accelerators and their links, for predicting what a step takes: published or measured figures, with formulas of rings
// and trees between the points that were measured.
#pragma once
#include <string>
#include <vector>

#include "framework/dispatch/communicator.h"

namespace weft::dist {

/// What one collective reaches at one size of group: seconds before the first byte counts, and bytes per second of the
/// larger of operand and result ("algorithm bandwidth").
struct LinkPoint {
  int size = 2;  // ranks of one node, or nodes
  double latency = 0, bandwidth = 0;
};

struct MachinePreset {
  std::string name;
  double flops64 = 0, flops32 = 0, flops16 = 0, flops8 = 0;  // dense products, a second
  double memory_bandwidth = 0;                               // bytes a second, measured
  double memory = 0;                                         // bytes of one device
  int node = 8;                                              // devices of a node
  double launch = 7e-6;                                      // seconds that a kernel takes at least
  double inner_hop = 0, inner_bus = 0;  // a ring within a node: seconds a step, bytes a second of a link
  double outer_hop = 0, outer_bus = 0;  // between nodes: of one device's share of the network
  std::vector<LinkPoint> inner_gather,
      inner_reduce;  // by ranks of one node; all-gather (and reduce-scatter), all-reduce
  std::vector<LinkPoint> outer_gather, outer_reduce;  // by nodes, all devices of each taking part
  double inner_all_to_all = 0, inner_all_to_all_latency = 0;
  std::vector<LinkPoint> outer_all_to_all;  // latency only: bandwidth is the network's, less 0.44 / nodes
  double ramp = 1;                          // share of the outer bandwidth that large messages reach
  double reached = 0.7;                     // share of peak rates that kernels reach

  double flops(DType dtype) const;
};

/// "h100" and "h200" (SXM), "a100" (SXM, 80 GB), "cpu" (threads of this process). Throws InvalidArgument naming them.
const MachinePreset& machine_preset(const std::string& name);
std::vector<std::string> machine_names();

/// Bytes that cross a rank's link for each byte of the larger of operand and result: all-reduce 2 (n-1) / n;
/// all-gather, reduce-scatter and all-to-all (n-1) / n; others 1 (nccl-tests, PERFORMANCE.md).
double bus_factor(Collective kind, double ranks);
/// A ring: its n-1 steps (twice for an all-reduce), each after `hop` seconds, over links of `bus` bytes a second.
double ring_seconds(Collective kind, double bytes, double ranks, double bus, double hop = 0);
/// A pair of binary trees, each for half of the bytes (Sanders, Speck, Traff 2009): all-reduces of few bytes over many
/// ranks.
double tree_seconds(double bytes, double ranks, double bus, double hop);

/// Bytes a second of a link for large messages, over ranks that are spread evenly over nodes.
double bus_bandwidth(Collective kind, int ranks, int nodes, const MachinePreset& machine);
/// `bytes`: of the larger of operand and result, as RankContext counts them. The faster of ring and tree.
double collective_seconds(Collective kind, double bytes, int ranks, int nodes, const MachinePreset& machine);

}  // namespace weft::dist
