// The flags of the options of strategies, made from the rows that strategies declare.
#pragma once
#include <initializer_list>
#include <string_view>

#include "framework/cli/cli.h"
#include "framework/mesh/plan.h"

namespace weft::train {

/// One flag for each OptionRow with `flag`, or for the rows of these names; the flags set the members of `plan`.
Flags plan_flags(dist::Plan& plan, std::initializer_list<std::string_view> names = {});

/// Throws UsageError, naming the flag and the allowed values, for an option value that is not allowed.
void check_plan_flags(const dist::Plan& plan);

}  // namespace weft::train
