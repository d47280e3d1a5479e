#include "models/optim/cells.h"

#include <set>

namespace weft::internal {

void set_cells(const std::vector<std::pair<std::string, CellHandle>>& cells,
               const std::map<std::string, Tensor>& values, const char* what) {
  std::string problems;
  auto add = [&](const auto&... text) { problems += str_cat(problems.empty() ? "" : ", ", text...); };
  std::set<std::string> known;
  for (const auto& [name, cell] : cells) {
    known.insert(name);
    const auto it = values.find(name);
    if (it == values.end()) {
      add("'", name, "' is missing");
    } else if (it->second.shape() != cell.shape()) {
      add("'", name, "' has shape ", it->second.shape(), ", need ", cell.shape());
    }
  }
  for (const auto& [name, value] : values)
    if (!known.contains(name)) add("'", name, "' is unexpected");
  WEFT_CHECK(problems.empty(), "load_state_dict: ", what, " state: ", problems);
  for (const auto& [name, cell] : cells) cell.set(values.at(name).to(cell.dtype()).to(cell.type().device));
}

}  // namespace weft::internal
