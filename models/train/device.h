// The device of a program's --device flag.
#pragma once
#include <string>

#include "framework/tensor/device.h"

namespace weft::train {

/// The device named "cpu", "cuda" or "cuda:N". Throws UsageError with the reason if there is no such GPU.
Device parse_device(const std::string& name);

}  // namespace weft::train
