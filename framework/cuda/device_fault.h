// What has to be done once a kernel was found to have failed on the device: nothing there can be read any more, and the
// call that found it is not the one that failed.
#pragma once
#include <string>

namespace weft::cuda::internal {

/// Registers what is told of such a fault before its error is thrown; may return more for the message: "; queued last:
/// ...". Called each time a call of the driver meets the fault. Must not throw. At most eight.
void at_device_fault(std::string (*tell)());

}  // namespace weft::cuda::internal
