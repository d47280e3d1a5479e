#include "models/train/plan_flags.h"

#include <algorithm>

#include "distributed/strategies/strategies.h"

namespace weft::train {

// The condition of a strategy's flags, "with --mesh and a dimension pp, ".
static std::string condition_of(const dist::Strategy& strategy) {
  return strategy.dimensions.size() == 1 ? str_cat("with --mesh and a dimension ", strategy.dimensions[0], ", ")
                                         : "with --mesh, ";
}

Flags plan_flags(dist::Plan& plan, std::initializer_list<std::string_view> names) {
  Flags flags;
  for (const dist::Strategy* strategy : dist::strategies_of({}))
    for (const dist::OptionRow& row : strategy->options) {
      if (!row.flag || (names.size() > 0 && std::ranges::count(names, row.name) == 0)) continue;
      std::visit(
          [&]<class Field>(const Field& field) {
            if constexpr (!std::is_same_v<Field, std::monostate>)
              flags.push_back({std::string(row.name), &(plan.*field), str_cat(condition_of(*strategy), row.help)});
          },
          row.field);
    }
  return flags;
}

void check_plan_flags(const dist::Plan& plan) {
  for (const dist::OptionRow* row : dist::options_of({})) {
    const std::string got = dist::text_of(*row, plan);
    check_flag(std::string(row->name).c_str(), dist::is_valid(*row, plan),
               row->allowed.empty() ? got : str_cat("'", got, "'"), dist::need_of(*row));
  }
}

}  // namespace weft::train
