#include "framework/base/actor.h"

namespace weft::internal {
thread_local constinit const void* acting_for = nullptr;
}  // namespace weft::internal
