// Communicators between threads of one process: the reference for all other transports, and the transport for several
// ranks on one machine.
//
// Reductions combine rank 0, 1, 2, ... from the left (16-bit floats in f32, rounded once), so all ranks get the same
// bits. start() never blocks. wait() sleeps until all ranks have started the collective, then helps to copy and reduce.
// Operands are in use until wait() succeeds or, after an error, until the Work is dropped. If ranks start different
// collectives, or a rank does not start one before the deadline, all ranks get one error that names both sides, and the
// communicator cannot be used any more.
#pragma once
#include <string>
#include <vector>

#include "framework/dispatch/rank/communicator.h"

namespace weft::dist {

/// The communicators of `size` ranks, by rank. `name` and `ranks` (their numbers in the world) are for messages.
std::vector<Ref<Communicator>> make_thread_communicators(int size, std::string name = "", std::vector<int> ranks = {});

}  // namespace weft::dist
