// The sums in a profile's tables: the launches of a record by kernel, module, class or line, the parts of the step,
// and both with faster classes of work. All values are sums over the record.
#pragma once
#include <string>
#include <vector>

#include "compiler/exec/record/record.h"
#include "tools/profile/module_folds.h"

namespace weft::profiler {

enum class By : uint8_t { kKernel, kModule, kClass, kLine };
const char* to_string(By by);
/// kernel, module, class or line; throws UsageError for any other name.
By parse_by(const std::string& name);

/// The classes of work, in the order of tables.
inline constexpr WorkClass kClasses[] = {WorkClass::kContraction, WorkClass::kNormalisation, WorkClass::kElementwise,
                                         WorkClass::kMovement, WorkClass::kCollective};

/// The launches of one name.
struct ProfileRow {
  std::string name;
  StepRecord::WorkSum sum;
  Bound bound = Bound::kMemory;     // the bound of the launches that take most of its time
  bool collective = true;           // all its launches are collectives: they wait for other ranks and have no roofline
  std::vector<std::string> places;  // places of its launches in the model, see place_of(); most time first

  /// Share of the roofline: 1 at the machine's rates; 0 if not measured.
  double reached() const { return sum.measured_us > 0 && !collective ? sum.predicted_us / sum.measured_us : 0; }
};
/// The name of a launch in a table. Modules are folded: "blocks.*.attn"; launches without a module have "(no module)".
/// A line is followed by module and phase: "model.cc:32, in blocks.*.ffn, backward".
std::string name_of(const LaunchRecord& launch, By by, const ModuleFolds& folds);
/// The folded module and the phase, unless the phase is forward: "blocks.*.ffn, backward".
std::string place_of(const LaunchRecord& launch, const ModuleFolds& folds);
/// The rows, slowest first.
std::vector<ProfileRow> rows_of(const StepRecord& record, By by);

/// The step's time outside launches: the host's work, and waiting. 0 if the record has no time of the step or of its
/// launches. Negative if the launches were slower when they were timed.
double overhead_us(const StepRecord& record);
/// False if the launches took longer than the step, by more than a few percent: other work disturbed the measurement.
bool comparable(double step_us, double launches_us);
bool comparable(const StepRecord& record);
/// A line about times that are not comparable, after `which`; empty if they are comparable.
std::string busy_text(const StepRecord& record, const char* which = "");

/// Microseconds of a step. Launches count as compute or memory by their bound, collectives as communication.
struct StepParts {
  double compute = 0, memory = 0, communication = 0, overhead = 0;
  double sum() const { return compute + memory + communication + overhead; }
};
StepParts parts_of(const StepRecord& record);

/// A class's part of the FLOPs and of the time of all launches.
struct ClassShare {
  WorkClass kind;
  int32_t launches = 0;
  double flops = 0, time = 0;
};
/// The shares of the classes with launches. Times are predicted if no launch was measured.
std::vector<ClassShare> class_shares(const StepRecord& record);

/// The factor by which the launches of each class become faster.
using Speedups = std::vector<std::pair<WorkClass, double>>;
/// "contraction=10x,elementwise=2": classes, of which contraction may be called products, and numbers above 0. Throws
/// UsageError for others.
Speedups parse_what_if(const std::string& text);

/// The step if some classes were faster (Amdahl 1967).
struct FasterStep {
  std::vector<ClassShare> shares;  // class_shares() with other times
  double launches_us = 0;          // time of all launches
  double launches_before_us = 0;
  double step_us = 0;      // overhead stays, but a negative overhead scales with the launches; 0: not measured
  bool predicted = false;  // the times are predicted: no launch was measured
};
FasterStep what_if(const StepRecord& record, const Speedups& speedups);

}  // namespace weft::profiler
