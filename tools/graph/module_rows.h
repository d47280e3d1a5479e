// The nodes of a graph by module, as rows of a picture: nested modules, equal layers as one, in the order of the
// forward pass.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "compiler/exec/record/record.h"
#include "framework/ir/graph.h"

namespace weft::tools {

struct ModuleRows {
  /// Rows [first, last] of a module that is drawn open.
  struct Frame {
    std::string label;
    int first = 0, last = 0, depth = 0;
  };
  std::vector<std::string> labels;  // row -> a closed module, or the line of ops between modules
  std::vector<int> depths;          // row -> the frames around it
  std::vector<Frame> frames;        // outer frames first
  std::vector<int> row;             // index: node; -1: arguments, cells, constants and views, which have no row
  std::vector<bool> repeated;       // node -> whether an equal earlier layer shows its layer
};

/// Opens modules, outer modules first, while there are at most `most` rows. Layers with numbers as names share rows if
/// their nodes have equal ops, types, phases and operands. Ops of backward and update are in the rows of their module.
ModuleRows module_rows(const Graph& g, std::span<const Phase> phases, int most);

/// The drawn node whose result `v` is, through views; -1 if it is an argument, a cell or a constant.
int32_t source_of(const Graph& g, Value v);

}  // namespace weft::tools
