// Ops with effects.
#pragma once
#include <span>
#include <string>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

/// Prints label, type and (summarised) values to stderr when the value is computed, eagerly or compiled. Returns t.
Tensor debug_print(const Arg& t, const std::string& label = "");

extern const OpDef debug_print_op;  // {label}
std::span<const OpDef* const> misc_ops();

}  // namespace weft
