// The environment variables that change how NCCL works.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "tools/doctor/facts.h"

namespace weft::tools {

struct NcclVariable {
  std::string_view name, does, when;  // name, effect, and reason to change it
  std::string_view now = {};          // replacement, if NCCL does not or no longer read the variable
};

/// The entry of a variable, by NVIDIA's and PyTorch's documentation; null for an unknown variable.
const NcclVariable* nccl_variable(std::string_view name);

/// Adds section "nccl_variables": each variable of `environment` that begins with NCCL_, its value, its effect and the
/// reason to change it.
void add_nccl_variables(FactList& facts, const std::map<std::string, std::string>& environment);

}  // namespace weft::tools
