// The list of all op records: the only place from which the text parser, tools and tests get them. The core's families
// are named here; a wing such as ops/linalg registers its own.
#pragma once
#include <span>

#include "framework/ir/op_def.h"

namespace weft {

/// Adds the records of a family that is not part of the core. A wing calls it from an initialiser, before main().
void register_ops(std::span<const OpDef* const> family);

/// The records of the core and of each wing that the program links.
std::span<const OpDef* const> all_ops();
/// The same as a table by name.
const OpTable& op_table();

}  // namespace weft
