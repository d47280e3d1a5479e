// Replicas that may die and come back (distributed/launch/live_replicas.h). data_parallel.cc splits the batch over
// them. Each replica has the whole state, so nothing is sharded over them. Ranks of different replicas only sum, in
// collectives of their own, after the sums inside a replica. plan_mesh() refuses everything else.
#include "distributed/strategies/strategy.h"

namespace weft::dist {
namespace {

constexpr std::string_view kDimensions[] = {"replica"};

std::string avoid(const Mesh&, const PlannedCollective& c) {
  if (c.axes != "replica" || c.kind == Collective::kAllReduce) return {};
  return "replicas can only sum, because any of them may die: a step that needs no rows of other replicas, or dp";
}

}  // namespace

const Strategy replica = {
    .name = "replica", .dimensions = kDimensions, .annotate = [](StrategyContext&) {}, .avoid = avoid};

}  // namespace weft::dist
