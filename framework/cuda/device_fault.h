// Reactions to a kernel that failed on the device: nothing there can be read any more, and a later call reports the
// failure.
#pragma once
#include <string>

namespace weft::cuda::internal {

/// Registers `report`, which is called before the error of such a fault is thrown. It may return more text for the
/// message: "; queued last: ...". Called each time a driver call meets the fault. Must not throw. At most eight.
void at_device_fault(std::string (*report)());

}  // namespace weft::cuda::internal
