// Domain: the iteration space of a group and where each of its values stands in it. The nodes are pulled apart into
// expressions: a node at an index map; views vanish into the maps.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "compiler/loop_ir/index_map.h"
#include "compiler/loop_ir/lower_group.h"

namespace weft::loop_ir {

/// One node seen at one index map. Operands are expressions before it.
struct Expr {
  enum Kind : uint8_t { kInput, kTile, kConstant, kIota, kPosition, kCompute, kReduction } kind = kCompute;
  int32_t node = -1;
  int32_t input = -1;  // kInput: operand of the body; args[0], if any, is the position along dim `indexed`
  int indexed = -1;
  int64_t limit = 0;          // kPosition: args[0], which must lie in [0, limit)
  IndexMap map;               // kInput, kIota: where it is read
  SmallVec<int32_t, 3> args;  // expressions
  uint32_t reduced = 0;       // kReduction: bit set of axes
  uint32_t axes = 0;          // bit set of axes that it varies along
};

struct Result {
  int32_t expr = -1;
  IndexMap map;
};

struct Domain {
  std::vector<int64_t> extents;  // of axes, in row-major order of the widest value; none is 1
  std::vector<Expr> exprs;       // in an order of evaluation
  std::vector<Result> results;   // by output of the body
  int32_t dot = -1;
  int dot_columns = 0;  // trailing dims of the dot's result that are columns of the product
};

/// Throws Unfusable where the body has no common iteration domain.
Domain find_domain(const Graph& body);

/// Why a body is no kernel.
struct Unfusable {
  std::string why;
};

}  // namespace weft::loop_ir
