#include "framework/dispatch/state/cell_access.h"

#include <algorithm>

namespace weft::internal {

void fail_inside(const Cell& c, const char* call) {
  fail(Code::kFailedPrecondition,
       str_cat(call, ": cell ", label(c),
               " belongs to the step that calls this function and writes the cell; need an "
               "operand instead: read the cell in the captured function, and pass the value to the op"));
}

std::string label(const Cell& c) {
  return c.name.empty() ? str_cat("a ", c.is_parameter ? "parameter" : "buffer", " ", c.type)
                        : str_cat("'", c.name, "'");
}

CellReader::CellReader(const Cell& c, const char* call) : cell_(c) {
  if (!c.gate.enter()) [[unlikely]]
    fail_inside(c, call);
}

CellOwner::CellOwner(const Cell& c, const char* call) : cell_(c) {
  if (!c.gate.own()) [[unlikely]]
    fail_inside(c, call);
}

Tensor held_value(const Cell& c, const char* call) {
  const CellReader read(c, call);
  return c.value;
}

bool is_torn(const Cell& c) {
  if (!c.gate.enter()) return c.torn;
  const bool torn = c.torn;
  c.gate.leave();
  return torn;
}

std::vector<Ref<Cell>> in_gate_order(std::vector<Ref<Cell>> cells) {
  std::sort(cells.begin(), cells.end(), [](const auto& a, const auto& b) { return a.get() < b.get(); });
  const auto same = [](const auto& a, const auto& b) { return a.get() == b.get(); };
  cells.erase(std::unique(cells.begin(), cells.end(), same), cells.end());
  return cells;
}

CellsOwner::CellsOwner(std::span<const Ref<Cell>> cells, const char* call) : cells_(cells) {
  for (size_t i = 0; i < cells_.size(); ++i) {
    if (cells_[i]->gate.own()) continue;
    for (size_t k = 0; k < i; ++k) cells_[k]->gate.release();
    fail_inside(*cells_[i], call);
  }
}

CellsOwner::~CellsOwner() {
  for (const Ref<Cell>& c : cells_) c->gate.release();
}

}  // namespace weft::internal
