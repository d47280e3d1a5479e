// The measured rates of this machine's CPU, kept as a machine file in the folder of the kernel cache, so that a later
// process need not measure them. The file may be damaged or of another machine: it counts only if its key, its working
// sets and the order of its rates are right; else the rates are measured again.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "compiler/cost/machine/machine.h"

namespace weft::internal {

/// Whether rates can be kept: the kernel cache has a folder that is safe to use.
bool keeps_rates();
/// Everything that the rates of a pool of `threads` threads depend on, in one line: the host, the processor, its
/// features, the instruction set (WEFT_ISA), threads, the CPU quota, the build, and the version of the measurement.
std::string rates_key(int threads);
/// The file for rates with `threads` threads; empty if !keeps_rates().
std::string rates_path(int threads);
/// Rates, and whether other processes took processors during their measurement.
struct KeptRates {
  Machine rates;
  bool disturbed = false;
};
/// The kept rates, with the fields that measured_cpu() sets. Nothing if there are none, or none that count.
std::optional<KeptRates> kept_rates(int threads);
/// Keeps rates of measured_cpu() with `threads` threads. A failure is ignored: then they are measured again.
void keep_rates(const KeptRates& measured, int threads);
/// The kept rates; if there are none, or disturbed ones, `measure` is called, and the faster rates are kept.
Machine kept_or_measured(int threads, const std::function<KeptRates()>& measure);

/// Whether other processes have taken processors from the threads of this process since the constructor.
class Disturbance {
 public:
  Disturbance();
  bool seen(int threads) const;

 private:
  double begin_us_;
  int64_t switches_;
};

}  // namespace weft::internal
