// Amounts as short texts, for reports and messages: three digits and a unit.
#pragma once
#include <string>

namespace weft {

/// "283 KB", "1.05 MB": powers of 1000.
std::string bytes_text(double bytes);
/// "1.23 GFLOP".
std::string flops_text(double flops);
/// "619 us", "1.38 ms", "2 s".
std::string seconds_text(double seconds);

}  // namespace weft
