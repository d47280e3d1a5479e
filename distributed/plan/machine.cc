#include "distributed/plan/machine.h"

#include <algorithm>
#include <cmath>

namespace weft::dist {
namespace {

constexpr double kMicro = 1e-6, kGiga = 1e9, kTera = 1e12;

// What nodes of 8 GPUs joined by NVLink have in common.
MachinePreset sxm(const char* name) {
  MachinePreset m{.name = name};
  m.memory = 80e9;
  m.inner_hop = 4.3 * kMicro;
  m.inner_all_to_all_latency = 50 * kMicro;
  m.ramp = 0.87;
  return m;
}

// Points are sizes as measured with NCCL on H100 nodes of 8 (figures of the AutoParallel cost model in pytorch's
// distributed planner); peak rates are the dense ones of the data sheet, memory what was measured of it.
MachinePreset h100() {
  MachinePreset m = sxm("h100");
  m.flops64 = 66.9 * kTera;
  m.flops32 = 494.7 * kTera;
  m.flops16 = 989.5 * kTera;
  m.flops8 = 1979 * kTera;
  m.memory_bandwidth = 3.0e12;
  m.inner_bus = 480 * kGiga;
  m.outer_hop = 4.72 * kMicro;
  m.outer_bus = 50 * kGiga;
  m.inner_gather = {{2, 8 * kMicro, 537 * kGiga}, {4, 17 * kMicro, 434 * kGiga}, {8, 30 * kMicro, 394 * kGiga}};
  m.inner_reduce = {{2, 10 * kMicro, 324 * kGiga}, {4, 15 * kMicro, 236 * kGiga}, {8, 31 * kMicro, 267 * kGiga}};
  m.outer_gather = {{2, 70.0 * kMicro, 409.6 * kGiga},
                    {4, 145.6 * kMicro, 396.4 * kGiga},
                    {8, 296.8 * kMicro, 390.1 * kGiga},
                    {16, 599.2 * kMicro, 387.0 * kGiga},
                    {32, 1204 * kMicro, 385.5 * kGiga}};
  m.outer_reduce = {{2, 131.6 * kMicro, 204.8 * kGiga},
                    {4, 282.8 * kMicro, 198.2 * kGiga},
                    {8, 585.2 * kMicro, 195.0 * kGiga},
                    {16, 1190 * kMicro, 193.5 * kGiga},
                    {32, 2399.6 * kMicro, 192.8 * kGiga}};
  m.inner_all_to_all = 380 * kGiga;
  m.outer_all_to_all = {{2, 37 * kMicro}, {4, 42 * kMicro}, {8, 60 * kMicro}, {16, 98 * kMicro}, {32, 290 * kMicro}};
  return m;
}

// An H100 with more and faster memory (4.8 TB/s by its data sheet, 4.3 measured by a copy).
MachinePreset h200() {
  MachinePreset m = h100();
  m.name = "h200";
  m.memory_bandwidth = 4.3e12;
  m.memory = 141e9;
  return m;
}

// Data sheet: 312 TFLOP/s bf16, 19.5 f64 and 156 TF32 on tensor cores, 2.0 TB/s, NVLink 3 with 600 GB/s both ways, one
// 200 Gb/s port for each device. Links reach of it what the h100's do.
MachinePreset a100() {
  MachinePreset m = sxm("a100");
  m.flops64 = 19.5 * kTera;
  m.flops32 = 156 * kTera;
  m.flops16 = 312 * kTera;
  m.flops8 = 312 * kTera;
  m.memory_bandwidth = 1.8e12;
  m.inner_bus = 235 * kGiga;
  m.outer_hop = 5 * kMicro;
  m.outer_bus = 25 * kGiga;
  m.inner_all_to_all = 200 * kGiga;
  return m;
}

// Ranks as threads: a byte moved is a byte copied by a core, and the ranks share the memory.
MachinePreset cpu() {
  MachinePreset m{.name = "cpu"};
  m.flops64 = 30e9;
  m.flops32 = 100e9;
  m.flops16 = 60e9;
  m.flops8 = 60e9;
  m.memory_bandwidth = 10e9;
  m.memory = 8e9;
  m.node = 1 << 20;
  m.launch = 2 * kMicro;
  m.inner_hop = 5 * kMicro;
  m.inner_bus = 5 * kGiga;
  m.outer_hop = 50 * kMicro;
  m.outer_bus = 1 * kGiga;
  m.inner_all_to_all = 5 * kGiga;
  m.inner_all_to_all_latency = 10 * kMicro;
  return m;
}

const std::vector<MachinePreset>& presets() {
  static const auto* all = new std::vector<MachinePreset>{h100(), h200(), a100(), cpu()};
  return *all;
}

// Between two points by bus bandwidth and, of latency, straight lines; beyond them the nearest bandwidth and the line
// on.
LinkPoint at(const std::vector<LinkPoint>& points, int size, Collective kind, double ranks_each) {
  auto bus = [&](const LinkPoint& p) { return p.bandwidth * bus_factor(kind, p.size * ranks_each); };
  size_t i = 0;
  while (i + 2 < points.size() && points[i + 1].size < size) ++i;
  const LinkPoint &a = points[i], &b = points[i + 1];
  const double x = static_cast<double>(size - a.size) / (b.size - a.size);
  const double inside = std::clamp(x, 0.0, 1.0);
  return {size, std::max(a.latency / 2, a.latency + x * (b.latency - a.latency)), bus(a) + inside * (bus(b) - bus(a))};
}

struct Reach {
  double latency, bus;
};

// Of one ring over `ranks` on `nodes`. `each` ranks of a node have only their share of its network.
Reach reach(Collective kind, int ranks, int nodes, const MachinePreset& m) {
  const bool reduce = kind == Collective::kAllReduce;
  const double steps = (ranks - 1) * (reduce ? 2.0 : 1.0);
  if (nodes <= 1) {
    if (kind == Collective::kAllToAll && m.inner_all_to_all > 0)
      return {m.inner_all_to_all_latency, m.inner_all_to_all * bus_factor(kind, ranks)};
    const auto& points = reduce ? m.inner_reduce : m.inner_gather;
    if (points.empty() ||
        (kind != Collective::kAllReduce && kind != Collective::kAllGather && kind != Collective::kReduceScatter))
      return {
          (reduce || kind == Collective::kAllGather || kind == Collective::kReduceScatter ? steps : 1) * m.inner_hop,
          m.inner_bus};
    const LinkPoint p = at(points, ranks, kind, 1);
    return {p.latency, p.bandwidth};
  }
  const double each = std::max(1.0, static_cast<double>(ranks) / nodes);
  if (kind == Collective::kAllToAll) {
    // What leaves the node goes through each rank's own port.
    const double efficiency = 1 - 0.44 / nodes,
                 outside = (ranks - each) / std::max(1.0, static_cast<double>(ranks - 1));
    const double latency = m.outer_all_to_all.empty() ? m.outer_hop * std::log2(nodes) + m.inner_all_to_all_latency
                                                      : at(m.outer_all_to_all, nodes, kind, 1).latency;
    return {latency, m.outer_bus * efficiency * m.ramp / std::max(outside, 1e-9)};
  }
  if (kind != Collective::kAllReduce && kind != Collective::kAllGather && kind != Collective::kReduceScatter)
    return {m.outer_hop, m.outer_bus};
  const auto& points = reduce ? m.outer_reduce : m.outer_gather;
  // With one rank of each node, gathers and scatters go in steps of doubling distance (NCCL's PAT, since 2.23).
  const double hops = each <= 1 ? std::ceil(std::log2(ranks)) * (reduce ? 2 : 1) : steps;
  if (points.empty()) return {hops * m.outer_hop, m.outer_bus * each * m.ramp};
  const LinkPoint p = at(points, nodes, kind, m.node);
  // The points have all devices of a node in the ring; a ring with fewer has as many steps as ranks and as few ports.
  return {each >= m.node ? p.latency : hops * m.outer_hop, p.bandwidth * each / m.node * m.ramp};
}

}  // namespace

double MachinePreset::flops(DType dtype) const {
  switch (itemsize(dtype)) {
    case 8:
      return flops64;
    case 4:
      return flops32;
    case 2:
      return flops16;
    default:
      return flops8;
  }
}

const MachinePreset& machine_preset(const std::string& name) {
  for (const MachinePreset& m : presets())
    if (m.name == name) return m;
  std::string words;
  for (const MachinePreset& m : presets()) words += str_cat(words.empty() ? "" : ", ", m.name);
  internal::fail(Code::kInvalidArgument, str_cat("machine: got '", name.substr(0, 40), "'; need one of ", words));
}

std::vector<std::string> machine_names() {
  std::vector<std::string> out;
  for (const MachinePreset& m : presets()) out.push_back(m.name);
  return out;
}

double bus_factor(Collective kind, double n) {
  switch (kind) {
    case Collective::kAllReduce:
      return 2 * (n - 1) / n;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return (n - 1) / n;
    case Collective::kBarrier:
      return 0;
    default:
      return 1;
  }
}

double ring_seconds(Collective kind, double bytes, double ranks, double bus, double hop) {
  const double steps = (ranks - 1) * (kind == Collective::kAllReduce ? 2 : 1);
  return bytes * bus_factor(kind, ranks) / bus + steps * hop;
}

double tree_seconds(double bytes, double ranks, double bus, double hop) {
  return 2 * bytes / bus + 2 * std::ceil(std::log2(std::max(1.0, ranks))) * hop;
}

double bus_bandwidth(Collective kind, int ranks, int nodes, const MachinePreset& machine) {
  return reach(kind, ranks, nodes, machine).bus;
}

double collective_seconds(Collective kind, double bytes, int ranks, int nodes, const MachinePreset& machine) {
  if (ranks <= 1) return 0;
  const Reach r = reach(kind, ranks, nodes, machine);
  const double ring = r.latency + bytes * bus_factor(kind, ranks) / r.bus;
  if (kind != Collective::kAllReduce) return ring;
  return std::min(ring, tree_seconds(bytes, ranks, r.bus, nodes > 1 ? machine.outer_hop : machine.inner_hop));
}

}  // namespace weft::dist
