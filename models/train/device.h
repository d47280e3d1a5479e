// The device of a program's --device flag.
#pragma once
#include <string>

#include "framework/tensor/device.h"

namespace weft::train {

/// The device named "cpu", "cuda" or "cuda:N". Ends the program as bad usage does (one line, exit code 2) where there
/// is no such GPU, with the reason.
Device parse_device(const std::string& name);

}  // namespace weft::train
