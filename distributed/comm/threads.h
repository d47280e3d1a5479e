// Communicators among threads of one process: the reference for all others, and what several ranks on one machine use.
//
// Reductions combine rank 0, 1, 2, ... from the left (16-bit floats in f32, rounded once), so all ranks get the same
// bits. start() never blocks; wait() sleeps until all ranks have come, then helps to copy and reduce; operands stay in
// use until all ranks are done with them, which is when wait() returns. Ranks that disagree, or one that does not come
// before the deadline, make one error that names both sides; afterwards the communicator is of no more use.
#pragma once
#include <string>
#include <vector>

#include "framework/dispatch/communicator.h"

namespace weft::dist {

/// The communicators of `size` ranks, by rank. `name` and `ranks` (their numbers in the world) are for messages.
std::vector<Ref<Communicator>> make_thread_communicators(int size, std::string name = "", std::vector<int> ranks = {});

/// For the handle of such a communicator: its rank starts nothing more (or, again, may). Who waits for it fails at once
/// instead of at the deadline.
void set_retired(Communicator& communicator, bool retired);

}  // namespace weft::dist
