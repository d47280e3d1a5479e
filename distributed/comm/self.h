// The world of one rank: every collective is a copy.
#pragma once
#include <memory>

#include "framework/dispatch/rank/rank.h"

namespace weft::dist {

/// The communicator of a new world of one.
Ref<Communicator> make_self_communicator();
/// A single rank: all axes have size 1. For programs and tests that run collectives without a world.
std::unique_ptr<RankContext> make_alone();

}  // namespace weft::dist
