// The list of all op records: the only place from which the text parser, tools and tests get them.
#pragma once
#include <span>

#include "framework/ir/op_def.h"

namespace weft {

/// Every record.
std::span<const OpDef* const> all_ops();
/// The same as a table by name.
const OpTable& op_table();

}  // namespace weft
