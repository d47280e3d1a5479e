// Rules that forbid collectives in a plan: "allgather@dp:activations". A plan with a forbidden collective is an error.
#pragma once
#include <string>
#include <vector>

#include "distributed/plan/collectives.h"
#include "framework/mesh/plan.h"

namespace weft::dist {

struct ForbidRule {
  std::string text;
  std::optional<Collective> kind;  // nothing: any
  std::string dimension;           // "*": any
  std::optional<Subject> subject;
  std::string pattern;  // pattern of names, in which * stands for any text; empty: any
};

/// Parses KIND@DIMENSION[:WHAT]. KIND: allreduce, allgather, reducescatter, alltoall, permute, broadcast, send, recv or
/// *. DIMENSION: of the mesh, of a strategy, or *. WHAT: parameters, gradients, activations or a pattern of names.
/// Throws InvalidArgument with the valid words.
ForbidRule parse_forbid(const Mesh& mesh, const std::string& text);
std::vector<ForbidRule> parse_forbid(const Mesh& mesh, const std::vector<std::string>& rules);

bool matches(const ForbidRule& rule, const PlannedCollective& c);

/// Throws FailedPrecondition with the first forbidden collective, its line, its reason and a setting that avoids it.
void check_forbidden(const Mesh& mesh, const Plan& plan, const std::vector<ForbidRule>& rules,
                     const std::vector<PlannedCollective>& collectives);

}  // namespace weft::dist
