// Communicators that move no data: each collective completes at once and leaves its result's memory unchanged. Plans
// for thousands of ranks run on them with the tensors of one small rank, or with none.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "framework/dispatch/rank.h"

namespace weft::dist {

/// Rank `rank` of `size`. The collectives that it starts are appended to `log`, if given, under the name `axes`. Peers
/// that do not exist and reductions that the dtype does not have are errors; sizes are not compared with other ranks.
Ref<Communicator> make_fake_communicator(int rank, int size, std::string axes = "",
                                         std::vector<CollectiveRecord>* log = nullptr);

/// Rank `rank` of a world of `size` whose communicators are all fake: the kernels of collectives run and record, and
/// results keep what was in memory. `place` returns the rank's coordinate along axes and the number of ranks there.
std::unique_ptr<RankContext> make_fake_rank(int rank, int size,
                                            std::function<std::pair<int, int>(const std::string& axes)> place);

}  // namespace weft::dist
