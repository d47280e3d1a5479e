// OptionRow: one option of a strategy. Saved plans (plan/plan_text.h), Plan::automatic(), reports and the flags of
// trainers read these rows; an option is written nowhere else.
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
  std::string_view name;  // of the member of Plan, of the line in saved plans, of the flag
  /// Where Plan stores it. monostate: in Plan::more, as text.
  std::variant<std::monostate, int Plan::*, bool Plan::*, double Plan::*, std::string Plan::*> field = {};
  std::string_view fallback = {};                  // the value if Plan::more has none
  std::span<const std::string_view> allowed = {};  // of text; empty: any
  int least = 0, most = 0;                         // of int; the default of Plan is allowed, too
  std::string_view need = {};                      // of numbers: "a stage from 0 to 3"
  std::string_view help = {};                      // one sentence
  /// The values that Plan::automatic() compares on this mesh; empty, or null: the one that the plan has.
  std::vector<std::string> (*tried)(const Mesh&, const Plan&) = nullptr;
};

/// The value of an option as text: "3", "on", "2.5", "ring".
std::string text_of(const OptionRow& row, const Plan& plan);
/// Whether set_option() takes this text.
bool is_allowed(const OptionRow& row, std::string_view text);
/// What is_allowed() asks for: "allgather, ring or ulysses", "on or off".
std::string need_of(const OptionRow& row);
/// `text` must be allowed.
void set_option(const OptionRow& row, std::string_view text, Plan& plan);

/// "a, b or c".
std::string one_of(std::span<const std::string_view> words);

}  // namespace weft::dist
