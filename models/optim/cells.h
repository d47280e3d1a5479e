// Functions that all optimisers share: names and values of their cells, and the learning rate.
#pragma once
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"

namespace weft::internal {

/// Throws unless the values have the names and shapes of the cells, and names every entry that is missing, unexpected
/// or does not fit; `what` names the owner of the cells: "optimiser". The first `scalars` cells accept only finite
/// numbers >= 0: learning rates and counts.
void check_cells(const std::vector<std::pair<std::string, CellHandle>>& cells,
                 const std::map<std::string, Tensor>& values, const char* what, size_t scalars);
/// Sets the cells after check_cells().
void set_cells(const std::vector<std::pair<std::string, CellHandle>>& cells,
               const std::map<std::string, Tensor>& values, const char* what, size_t scalars);

/// Unique names for the state of parameters. If parameters of two modules have equal names, the later name begins with
/// a number.
class StateNames {
 public:
  const std::string& add(const Parameter& p);

 private:
  std::unordered_set<std::string> names_;
};

/// "parameter 'w'", or without a name "parameter 3" (its position in the caller's list), for errors.
std::string shown(const Parameter& p, size_t position);

/// Throws unless this is a learning rate; `what` is the caller: "set_lr".
void check_lr(double value, const char* what);
/// Sets a learning rate. Throws inside a compiled function, which would write the same number in every call.
void set_lr(const Buffer& lr, double value, const char* what);

}  // namespace weft::internal
