// fuse: a lowered graph divided into launches. Before: primitives only, no grad. After, stage "fused": fused nodes
// (compiler/loop_ir/fused.h), library calls (products, sorts, indexing, random bits, side effects) and views; values,
// cells and effects as before. Fewest bytes through memory is the aim; sums keep their order.
//
// The parts, each with a name that can be switched off: fuse_rows (reductions with what surrounds them), fuse_epilogue
// (what follows a product, on its tile), fuse_siblings (groups that read the same), fuse_duplicate (cheap values
// computed again by their readers), fuse_prologue (of these readers, products).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "compiler/passes/pass.h"

namespace weft {

struct FusionReport;

struct FuseOptions {
  bool rows = true, epilogue = true, siblings = true, duplicate = true, prologue = true;
  bool little_memory = false;  // prologues also compute what costs more time than it saves
};

/// The parts by name, as passes that do nothing by themselves: for PassOptions::known.
std::span<const Pass> fusion_parts();
/// All parts but those named here or in WEFT_DISABLE ("all": none).
FuseOptions fuse_options(const std::vector<std::string>& disable = {});

/// Null if there is nothing to fuse. Fills *report (fuse_report.h) if it is given.
Ref<Graph> fuse(const Graph& g, const FuseOptions& options, FusionReport* report = nullptr);
/// The pass, with the parts that WEFT_DISABLE leaves.
Ref<Graph> fuse(const Graph& g);

}  // namespace weft
