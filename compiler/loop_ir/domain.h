// Domain: the iteration space of a group, and an index map into it for each value of the group. The nodes become
// expressions: a node at an index map. Views disappear into the maps.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "compiler/loop_ir/index_map.h"
#include "compiler/loop_ir/lower_group.h"

namespace weft::loop_ir {

/// One node at one index map. Its operands are earlier expressions.
struct Expr {
  enum ExprKind : uint8_t { kInput, kTile, kConstant, kIota, kPosition, kCompute, kReduction } kind = kCompute;
  int32_t node = -1;
  int32_t input = -1;  // kInput: operand of the body; args[0], if present, is the position along dim `indexed`
  int indexed = -1;
  int64_t limit = 0;          // kPosition: args[0] must be in [0, limit)
  IndexMap map;               // kInput, kIota: the elements that it reads
  SmallVec<int32_t, 3> args;  // expressions
  uint32_t reduced = 0;       // kReduction: bit set of axes
  uint32_t axes = 0;          // bit set of the axes along which it varies
};

struct MappedExpr {
  int32_t expr = -1;
  IndexMap map;
};

struct Domain {
  std::vector<int64_t> extents;     // index: axis, in row-major order of the widest value; no extent is 1
  std::vector<Expr> exprs;          // in an order in which they can be evaluated
  std::vector<MappedExpr> results;  // index: output of the body
  int32_t dot = -1;
  int dot_columns = 0;  // trailing dims of the dot's result that are columns of the product
};

/// Throws Unfusable if the body has no common iteration domain.
Domain find_domain(const Graph& body);

/// Why a body cannot be one kernel.
struct Unfusable {
  std::string why;
};

}  // namespace weft::loop_ir
