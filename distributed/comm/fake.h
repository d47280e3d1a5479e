// Communicators that move nothing: each collective is done at once and its result left as it was. Plans for thousands
// of ranks run on them with tensors of one small rank, or none.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "framework/dispatch/rank.h"

namespace weft::dist {

/// Rank `rank` of `size`; what it starts is appended to `log`, if given, under the name `axes`. Sends and receives to
/// peers that there are not, and reductions of what has no sum, fail; sizes are not compared with anyone's.
Ref<Communicator> make_fake_communicator(int rank, int size, std::string axes = "",
                                         std::vector<CollectiveRecord>* log = nullptr);

/// Rank `rank` of a world of `size` in which all communicators are such: kernels of collectives run and record, results
/// keep what was in memory. `place` gives the coordinate along axes and the number of ranks there.
std::unique_ptr<RankContext> make_fake_rank(int rank, int size,
                                            std::function<std::pair<int, int>(const std::string& axes)> place);

}  // namespace weft::dist
