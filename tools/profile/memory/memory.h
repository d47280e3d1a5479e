// The holders of a step's memory, from the plan in its record. Nothing is sampled.
#pragma once
#include <string>
#include <vector>

#include "compiler/exec/record/record.h"
#include "tools/profile/module_folds.h"

namespace weft::profiler {

/// A block of memory that is live at the peak.
struct Holder {
  std::string name;    // name of the cell, or of the first kernel that writes the block
  std::string module;  // "blocks.3.attn"; empty outside modules
  std::string line;    // line of the first launch that writes it or uses the cell; empty if there is none
  std::string phase;   // phase of this launch; empty for cells and constants
  std::string home;    // arena, cell, output or constants
  int64_t bytes = 0;
  int32_t first = -1, last = -1;  // launches between which its content is needed; -1: always
};

struct MemoryUse {
  std::vector<Holder> holders;  // holders at the peak, the largest first
  ModuleFolds folds;
  int64_t gaps = 0;  // bytes of the arena between buffers
};
MemoryUse memory_of(const StepRecord& record);

/// Bytes at the peak by a part of the holders (&Holder::line), the largest first. Modules are folded: "blocks.*".
std::vector<std::pair<std::string, int64_t>> bytes_by(const MemoryUse& use, std::string Holder::*part);

/// Bytes that are live during each launch.
struct MemorySeries {
  std::string name;
  std::vector<double> bytes;
};
/// Memory that lives as long as the step (cells; outputs and constants), then the arena by the module that writes it:
/// the `most` modules with most bytes at the peak, and the other modules together.
std::vector<MemorySeries> memory_timeline(const StepRecord& record, size_t most);

}  // namespace weft::profiler
