// The environment variables that change how NCCL works.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "tools/facts.h"

namespace weft::tools {

struct NcclVariable {
  std::string_view name, does, when;  // what it does, and when to change it
  std::string_view now = {};          // not of NCCL, or not any more: what takes its place
};

/// The entry of a variable, by NVIDIA's and PyTorch's documentation; null for one that is not known.
const NcclVariable* nccl_variable(std::string_view name);

/// Adds section "nccl_variables": each one of `environment` that begins with NCCL_, its value, what it does and when to
/// change it.
void add_nccl_variables(Facts& facts, const std::map<std::string, std::string>& environment);

}  // namespace weft::tools
