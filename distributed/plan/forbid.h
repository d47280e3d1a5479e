// Rules that turn an expectation about a plan's communication into an error: "allgather@dp:activations" and the like.
#pragma once
#include <string>
#include <vector>

#include "distributed/plan/collectives.h"

namespace weft::dist {

struct ForbidRule {
  std::string text;
  std::optional<Collective> kind;  // nothing: any
  std::string dimension;           // "*": any
  std::optional<Subject> subject;
  std::string pattern;  // of names, * stands for any text; empty: any
};

/// KIND@DIMENSION[:WHAT], KIND one of allreduce, allgather, reducescatter, alltoall, permute, broadcast, send, recv and
/// *; DIMENSION a name of the mesh, a standard one that it lacks, or *; WHAT parameters, gradients, activations or a
/// pattern of names. Throws InvalidArgument with the valid words.
ForbidRule parse_forbid(const Mesh& mesh, const std::string& text);
std::vector<ForbidRule> parse_forbid(const Mesh& mesh, const std::vector<std::string>& rules);

bool matches(const ForbidRule& rule, const PlannedCollective& c);

/// Throws FailedPrecondition naming the first collective that a rule forbids, its line, why it is there and what would
/// avoid it.
void check_forbidden(const Mesh& mesh, const std::vector<ForbidRule>& rules,
                     const std::vector<PlannedCollective>& collectives);

/// Whether a name fits a pattern in which * stands for any text.
bool name_matches(std::string_view pattern, std::string_view name);

}  // namespace weft::dist
