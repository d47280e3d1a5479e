// The list of strategies, and the pins of a step from all of them.
#pragma once
#include "distributed/strategies/strategy.h"

namespace weft::dist {

/// The strategies of the registry, then plan.strategies, in the order in which they annotate. Throws InvalidArgument if
/// one is null.
std::vector<const Strategy*> strategies_of(const Plan& plan);
/// The options of all strategies. Options of later strategies come first: Plan::automatic() varies them slowest.
std::vector<const OptionRow*> options_of(const Plan& plan);
/// The plan with Strategy::settle of all strategies applied.
Plan settled(const Mesh& mesh, Plan plan);
/// "zero 3, sequence on": the options that Plan::automatic() varies, for strategies that serve this mesh.
std::string options_text(const Mesh& mesh, const Plan& plan);

/// Throws InvalidArgument for option values that are not allowed, and for unknown names in plan.more.
void check_options(const Plan& plan);
/// check_options(), which also throws for mesh dimensions without a strategy and for arguments that do not divide.
/// make_pins() does the same checks.
void check_arguments(const Mesh& mesh, const Plan& plan, std::span<const TensorType> arguments);

/// The pins of a step. `plan` must be settled. Throws InvalidArgument for option values that are not allowed, rules
/// that match no parameter, mesh dimensions without a strategy, and work that does not divide.
Pins make_pins(const Mesh& mesh, const Graph& joint, const Plan& plan, std::vector<std::string>* notes = nullptr);

// ---- rules.cc: the rules of a plan ----

void pin_rules(StrategyContext& s);
/// Whether a name matches a pattern in which * stands for any text.
bool name_matches(std::string_view pattern, std::string_view name);

}  // namespace weft::dist
