// Tables of text, and numbers for them.
#pragma once
#include <string>
#include <vector>

namespace weft::profiler {

/// Lines of cells; the first cell of a line is aligned to the left, the others to the right. Lines may be of different
/// lengths.
std::string table_text(const std::vector<std::vector<std::string>>& lines);

/// A number with `digits` digits after the point, up to 30; a result of 0 has no sign. From 1e15 on, where these digits
/// carry no information, number_text() is used.
std::string fixed(double value, int digits);
/// A number of any size with `digits` significant digits, "0.00143", "1.39e+06"; whole numbers below a million in full.
std::string number_text(double value, int digits = 3);
/// "1 node", "625 nodes"; `plural`: the ending of the plural.
std::string count_text(double count, const std::string& noun, const char* plural = "s");
/// "12.3%" of a share.
std::string percent(double share);
/// amount / time with about three digits; "-" without a time.
std::string rate_text(double amount, double time);

}  // namespace weft::profiler
