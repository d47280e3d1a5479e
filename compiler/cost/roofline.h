// The time that a machine's rates allow for a piece of work, and what follows from it: where arithmetic starts to cost,
// what share of a step each kind of work takes, and what is left when one kind becomes faster.
#pragma once
#include <vector>

#include "compiler/cost/machine.h"

namespace weft {

/// One kernel's work.
struct KernelWork {
  double bytes = 0, flops = 0, products = 0;
};

/// Seconds of `work` where memory, elementwise arithmetic and products overlap perfectly: the longest of the three
/// (Williams, Waterman, Patterson: Roofline, 2009). A rate of zero takes no time.
double roofline_seconds(const Machine& machine, const KernelWork& work);

/// Operations on each element at which arithmetic takes as long as moving the element's `bytes` (read plus written):
/// fewer are free.
double free_operations(const Machine& machine, double bytes);

/// Operations on each element at which a kernel that moves `bytes` for it takes `times` as long as the move alone.
double operations_for(const Machine& machine, double bytes, double times);

/// Share of the whole time that each kind of work takes, one kernel of each kind.
std::vector<double> time_shares(const Machine& machine, const std::vector<KernelWork>& kinds);

/// Share of time that the rest takes once a kind of work with share `share` runs `speedup` times as fast (Amdahl 1967).
double rest_after_speedup(double share, double speedup);

}  // namespace weft
