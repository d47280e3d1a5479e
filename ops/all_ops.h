// The list of all op records: the one place that the text parser, tools and tests learn them from.
#pragma once
#include <span>

#include "framework/ir/op_def.h"

namespace weft {

/// Every record there is.
std::span<const OpDef* const> all_ops();
/// The same by name.
const OpTable& op_table();

}  // namespace weft
