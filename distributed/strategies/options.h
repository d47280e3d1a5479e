// OptionRow: one option of a strategy. Saved plans (plan/plan_text.h), Plan::automatic(), reports and the flags of
// trainers (models/train/plan_flags.h) read these rows; an option is written nowhere else.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "framework/mesh/mesh.h"
#include "framework/mesh/plan.h"

namespace weft::dist {

struct OptionRow {
  std::string_view name;  // name of the member of Plan, of the line in saved plans, and of the flag
  /// The member of Plan that stores the value; monostate: Plan::more stores it as text.
  std::variant<std::monostate, int Plan::*, bool Plan::*, double Plan::*, std::string Plan::*> field = {};
  std::string_view fallback = {};                  // the value if Plan::more has none
  std::span<const std::string_view> allowed = {};  // allowed texts; empty: any
  int least = 0, most = 0;                         // range of an int; the default of Plan is also allowed
  std::string_view need = {};                      // numbers only: "a stage from 0 to 3"
  std::string_view help = {};                      // one sentence
  bool flag = true;                                // trainers have a flag for it
  /// The values that Plan::automatic() compares on this mesh; empty, or null: the plan's value.
  std::vector<std::string> (*tried)(const Mesh&, const Plan&) = nullptr;
};

/// The value of an option as text: "3", "on", "2.5", "ring".
std::string text_of(const OptionRow& row, const Plan& plan);
/// Whether set_option() accepts this text.
bool is_allowed(const OptionRow& row, std::string_view text);
/// Whether two plans have the same value.
bool is_same(const OptionRow& row, const Plan& a, const Plan& b);
/// Whether the plan's value is allowed, or the default.
bool is_valid(const OptionRow& row, const Plan& plan);
/// The values that is_allowed() accepts: "allgather, ring or ulysses", "on or off".
std::string need_of(const OptionRow& row);
/// `text` must be allowed.
void set_option(const OptionRow& row, std::string_view text, Plan& plan);

/// "a, b or c".
std::string one_of(std::span<const std::string_view> words);

}  // namespace weft::dist
