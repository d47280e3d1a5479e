// The shortest time of a piece of work at a machine's rates. Reports, plans and recomputation all predict a launch with
// it. Also: where arithmetic starts to cost, the share of a step that each kind of work takes, and the shares when one
// kind becomes faster.
#pragma once
#include <vector>

#include "compiler/cost/machine/machine.h"
#include "framework/ir/op_def.h"

namespace weft {

/// The results of a matrix product: `count` matrices [m, n]; unknown if m is 0.
struct ProductShape {
  double count = 1, m = 0, n = 0;
  double head = 0;  // elements of an attention head
};
/// Share of the multiprocessors' time that the tiles of a product fill with results: the last wave of tiles does not
/// fill the device, and tiles on an edge compute more than they store (NVIDIA, Matrix Multiplication Background). The
/// best of the usual tile sizes counts; small tiles read more and reach less. 1 for a machine without multiprocessors.
double wave_share(const Machine& machine, const ProductShape& shape);

/// Seconds that each resource of a machine is busy with a piece of work. A rate of zero takes no time.
struct ResourceSeconds {
  double memory = 0, arithmetic = 0, products = 0;
};
/// Memory has the rates of the work's working set (of all its bytes if that is 0), interpolated between the measured
/// sets. If r bytes are read and w bytes written, min(r, w) bytes are copied and the rest is only read or only written.
/// Products have the rate of their dtype times wave_share() and the share of their smallest side, interpolated between
/// the measured sides.
ResourceSeconds resource_seconds(const Machine& machine, const Cost& work, const ProductShape& shape = {});

/// Seconds of `work` if memory, elementwise arithmetic and products overlap perfectly: the longest of the three
/// (Williams, Waterman, Patterson: Roofline, 2009).
double roofline_seconds(const Machine& machine, const Cost& work, const ProductShape& shape = {});

/// Seconds of a kernel of its own: its roofline and the launch.
double launch_seconds(const Machine& machine, const Cost& work, const ProductShape& shape = {});

/// Operations on each element that make a kernel take `times` as long as moving the element's `bytes` alone.
double operations_for(const Machine& machine, double bytes, double times);

/// Shares of the whole time once each kind of work k, which takes shares[k] of it, runs speedups[k] times as fast
/// (Amdahl 1967). `shares` may be times too; zeros if nothing takes time.
std::vector<double> shares_after_speedup(const std::vector<double>& shares, const std::vector<double>& speedups);

}  // namespace weft
