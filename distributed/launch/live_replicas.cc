#include "distributed/launch/live_replicas.h"

namespace weft::dist {

static thread_local LiveReplicas* current_replicas = nullptr;

LiveReplicas* LiveReplicas::current() { return current_replicas; }

ScopedReplicas::ScopedReplicas(LiveReplicas& replicas) : previous_(current_replicas) { current_replicas = &replicas; }
ScopedReplicas::~ScopedReplicas() { current_replicas = previous_; }

}  // namespace weft::dist
