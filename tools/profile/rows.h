// What the tables of a profile count: the launches of a record by kernel, module, class or line, the parts of the step,
// and what becomes of them when a class of work is faster. All of it is sums over the record.
#pragma once
#include <string>
#include <vector>

#include "compiler/exec/record.h"

namespace weft::profiler {

enum class By : uint8_t { kKernel, kModule, kClass, kLine };
const char* to_string(By by);
/// kernel, module, class or line; throws UsageError for another.
By parse_by(const std::string& name);

/// The classes of work, in the order of tables.
inline constexpr WorkClass kClasses[] = {WorkClass::kContraction, WorkClass::kNormalisation, WorkClass::kElementwise,
                                         WorkClass::kMovement, WorkClass::kCollective};

/// The launches of one name.
struct ProfileRow {
  std::string name;
  StepRecord::Sum sum;
  Bound bound = Bound::kMemory;     // what bounds the launches that take most of its time
  bool collective = true;           // all its launches are: they wait for other ranks, and have no roofline
  std::vector<std::string> places;  // where its launches are in the model, see place_of(); most time first

  /// Share of the roofline: 1 at the machine's rates; 0 if it is not measured.
  double reached() const { return sum.measured_us > 0 && !collective ? sum.predicted_us / sum.measured_us : 0; }
};
/// The name of a launch in a table. Modules are folded: "blocks.*.attn"; launches without one have "(no module)". A
/// line has module and phase beside it: "model.cc:32, in blocks.*.ffn, backward".
std::string name_of(const LaunchRecord& launch, By by);
/// The folded module and the phase, unless that is forward: "blocks.*.ffn, backward".
std::string place_of(const LaunchRecord& launch);
/// Slowest first.
std::vector<ProfileRow> rows_of(const StepRecord& record, By by);

/// The step without its launches: what the host does, and waiting. 0 if the record has no time of the step or of its
/// launches. It is below 0 if the launches were slower when they were timed.
double overhead_us(const StepRecord& record);
/// False if the launches took longer than the step, by more than a few percent: the times are not of one calm moment.
bool comparable(double step_us, double launches_us);
bool comparable(const StepRecord& record);
/// A line that says so, after `which`; empty if they are comparable.
std::string busy_text(const StepRecord& record, const char* which = "");

/// Microseconds of a step. Launches count as compute or memory by what bounds them, collectives as communication.
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
/// Of the classes that have launches. Times are predicted ones if no launch was measured.
std::vector<ClassShare> class_shares(const StepRecord& record);

/// By class: how many times as fast its launches shall be.
using Speedups = std::vector<std::pair<WorkClass, double>>;
/// "contraction=10x,elementwise=2": classes, of which contraction may be called products, and numbers above 0. Throws
/// UsageError for others.
Speedups parse_what_if(const std::string& text);

/// The step if some classes were faster (Amdahl 1967).
struct WhatIf {
  std::vector<ClassShare> shares;  // class_shares() with other times
  double launches_us = 0;          // of all launches
  double launches_before_us = 0;
  double step_us = 0;      // overhead stays, but one below 0 changes as the launches do; 0: not measured
  bool predicted = false;  // the times are predicted ones: no launch was measured
};
WhatIf what_if(const StepRecord& record, const Speedups& speedups);

}  // namespace weft::profiler
