// A few op records and random graphs of them, for tests of graph code that does not need real ops.
#pragma once
#include <random>

#include "framework/ir/op_def.h"

namespace weft::testing {

extern const OpDef add_op;      // pointwise, commutative
extern const OpDef neg_op;      // pointwise
extern const OpDef fill_op;     // no operands; {shape, value}
extern const OpDef split_op;    // two results of operand 0's type
extern const OpDef sum_op;      // 0-d sum
extern const OpDef print_op;    // side effect, no results
extern const OpDef call_op;     // {body}: a nested graph with an input for each operand
extern const OpDef history_op;  // kReadsTape

/// All of the above.
const OpTable& test_ops();

/// A valid graph of about `nodes` nodes with every feature that text has: cells, captured tensors, nested graphs,
/// several results, odd strings and numbers, scopes, lines, writes. Captured tensors stay small enough to be printed in
/// full.
Ref<Graph> random_graph(std::mt19937& random, int nodes, int depth = 0);

}  // namespace weft::testing
