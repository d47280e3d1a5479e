// dist::compile: a single-device step, laid over a mesh.
#pragma once
#include "compiler/exec/compile.h"
#include "compiler/exec/partitioned.h"
#include "distributed/mesh/mesh.h"
#include "distributed/passes/arrange.h"
#include "distributed/strategies/plan.h"

namespace weft::dist {

struct CompileOptions {
  Mesh mesh = {};
  Plan plan = {};
  int64_t memory_budget = 0;  // bytes of one rank; 0 is no limit
  std::string numerics = "fast";
  bool verify_numerics = false;  // the bits of one device that also has it: sums do not depend on order
  std::vector<std::string> disable = {};
  std::string kernel_cache = {};
  CommunicationOptions communication = {};  // bucketing, overlap, and the network they are planned for

  /// The options of weft::compile, with the partitioner for this mesh.
  weft::CompileOptions for_one_rank() const;
};

/// `fn` compiled as by weft::compile and run by all ranks of the mesh: arguments, results and cells are the whole ones.
template <class Fn>
weft::Compiled<std::decay_t<Fn>> compile(Fn&& fn, const CompileOptions& options) {
  return {std::forward<Fn>(fn), options.for_one_rank()};
}

}  // namespace weft::dist
