// Modules with equal siblings as one row: "blocks.*.attn" for the blocks of a transformer.
#pragma once
#include <map>
#include <string>

#include "compiler/exec/record/record.h"

namespace weft::profiler {

/// Replaces the numbers of equal siblings in names of modules. Siblings are equal if they have cells of the same names
/// and sizes, or if no sibling has cells. All equal siblings are "*", neighbours of several that are equal "1-11";
/// other siblings keep their numbers, such as the layers of an nn::Sequential.
class ModuleFolds {
 public:
  ModuleFolds() = default;
  explicit ModuleFolds(const StepRecord& record);
  /// "(no module)" for an empty name.
  std::string operator()(const std::string& module) const;

 private:
  std::map<std::string, std::string> labels_;  // key: the name up to a number, with it
};

}  // namespace weft::profiler
