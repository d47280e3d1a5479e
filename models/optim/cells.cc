#include "models/optim/cells.h"

#include <cmath>
#include <set>

#include "framework/dispatch/state/state.h"
#include "framework/dispatch/state/torn.h"
#include "ops/core/creation.h"

namespace weft::internal {

// Whether an f32 parameter can be moved by this much.
static bool fits_f32(double value) { return std::isfinite(static_cast<float>(value)) && value >= 0; }

void check_cells(const std::vector<std::pair<std::string, CellHandle>>& cells,
                 const std::map<std::string, Tensor>& values, const char* what, size_t scalars) {
  std::string problems;
  auto add = [&](const auto&... text) { problems += str_cat(problems.empty() ? "" : ", ", text...); };
  std::set<std::string> known;
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto& [name, cell] = cells[i];
    known.insert(name);
    const auto it = values.find(name);
    if (it == values.end()) {
      add("'", name, "' is missing");
    } else if (const std::string problem = misfit(cell, it->second); !problem.empty()) {
      add("'", name, "' ", problem);
    } else if (i < scalars && it->second.device().type != DeviceType::kMeta) {
      const double value = it->second.to(cell.dtype()).item<double>();
      if (!fits_f32(value)) add("'", name, "' is ", value, ", need a finite number >= 0");
    }
  }
  for (const auto& [name, value] : values)
    if (!known.contains(name)) add("'", name, "' is unexpected");
  WEFT_CHECK(problems.empty(), "load_state_dict: ", what, " state: ", problems);
}

void set_cells(const std::vector<std::pair<std::string, CellHandle>>& cells,
               const std::map<std::string, Tensor>& values, const char* what, size_t scalars) {
  check_cells(cells, values, what, scalars);
  for (const auto& [name, cell] : cells) cell.set(values.at(name).to(cell.dtype()).to(cell.type().device));
}

const std::string& StateNames::add(const Parameter& p) {
  const std::string number = str_cat("param", names_.size());
  std::string name = p.name().empty() ? number : p.name();
  while (names_.contains(name)) name = str_cat(number, ".", name);
  return *names_.insert(std::move(name)).first;
}

std::string shown(const Parameter& p, size_t position) {
  return p.name().empty() ? str_cat("parameter ", position, " (without a name)")
                          : str_cat("parameter '", p.name(), "'");
}

void check_lr(double value, const char* what) {
  WEFT_CHECK(fits_f32(value), what, ": lr is ", value, "; need a finite number >= 0");
}

void set_lr(const Buffer& lr, double value, const char* what) {
  check_lr(value, what);
  WEFT_CHECK_AS(kFailedPrecondition, !is_capturing(), what,
                ": called inside a compiled function, which would keep this one number; need a call between steps");
  // Passes the number as data. As a constant, each value would need its own kernel.
  lr.set(full({}, value, {.dtype = lr.dtype()}).to(lr.type().device));
}

}  // namespace weft::internal
