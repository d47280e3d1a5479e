// The communicator of a world of one rank: every collective is a copy.
#pragma once
#include "framework/dispatch/communicator.h"

namespace weft::dist {

/// A new world of one.
Ref<Communicator> make_self_communicator();

}  // namespace weft::dist
