#include "framework/dispatch/tf32.h"

#include <atomic>

namespace weft {

static std::atomic<bool> allowed{false};

void set_tf32(bool on) { allowed.store(on, std::memory_order_relaxed); }
bool tf32() { return allowed.load(std::memory_order_relaxed); }

}  // namespace weft
