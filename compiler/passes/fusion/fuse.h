// fuse: divides a lowered graph into launches, so that the fewest bytes go through memory. Sums keep their order.
// Before: primitives only, no grad. After, stage "fused": fused nodes (compiler/loop_ir/fused.h), library calls
// (products, sorts, indexing, random bits, side effects) and views. Values, cells and effects are the same as before.
//
// WEFT_DISABLE can switch off each part by name:
// - fuse_rows: reductions with the ops around them.
// - fuse_epilogue: ops after a product, on its tile.
// - fuse_siblings: groups that read the same values.
// - fuse_duplicate: readers recompute cheap values.
// - fuse_prologue: products are such readers too.
#pragma once
#include "compiler/passes/pass.h"

namespace weft {

struct FusionReport;

struct FuseOptions {
  bool rows = true, epilogue = true, siblings = true, duplicate = true, prologue = true;
  bool low_memory = false;  // prologues also compute values that cost more time than they save
};

/// The parts that are switched on, and the facts that fusion reads.
FuseOptions fuse_options(const PassContext& context);

/// Null if there is nothing to fuse. Fills *report (fuse_report.h) if it is not null.
Ref<Graph> fuse(const Graph& g, const FuseOptions& options, FusionReport* report = nullptr);
/// The pass: fills in context.fusion.
Ref<Graph> fuse(const Graph& g, PassContext& context);

}  // namespace weft
