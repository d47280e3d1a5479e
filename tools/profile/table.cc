#include "tools/profile/table.h"

#include <algorithm>
#include <cmath>

#include "framework/base/str_cat.h"

namespace weft::profiler {

std::string table_text(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths;
  for (const auto& line : lines)
    for (size_t i = 0; i < line.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], line[i].size());
    }
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - line[i].size(), ' ');
      text += i == 0 ? line[i] + (line.size() > 1 ? space : "") : str_cat("  ", space, line[i]);
    }
    text += '\n';
  }
  return text;
}

std::string fixed(double value, int digits) {
  if (!(std::abs(value) < 1e15)) return number_text(value);
  const std::string text = formatted("%.*f", digits, value);
  return text[0] == '-' && text.find_first_not_of("-0.") == text.npos ? text.substr(1) : text;
}

std::string number_text(double value, int digits) {
  const bool whole = value == std::round(value) && std::abs(value) < 1e6;
  return formatted("%.*g", whole ? std::max(digits, 6) : digits, value);
}

std::string count_text(double count, const std::string& noun, const char* plural) {
  return str_cat(number_text(count), " ", noun, count == 1 ? "" : plural);
}

std::string percent(double share) { return str_cat(fixed(100 * share, std::abs(share) < .001 ? 2 : 1), "%"); }

std::string rate_text(double amount, double time) {
  if (!(time > 0)) return "-";
  const double rate = amount / time;
  return fixed(rate, rate < 10 ? 2 : rate < 100 ? 1 : 0);
}

}  // namespace weft::profiler
