#include "framework/base/units.h"

#include <cstdio>
#include <initializer_list>

namespace weft {

static std::string three_digits(double x) {
  // Numbers in the smallest and the largest unit may have any size.
  const bool exponent = x >= 1e15 || (x > 0 && x < 0.005);
  char s[32];
  std::snprintf(s, sizeof s, exponent ? "%.3g" : x >= 100 ? "%.0f" : x >= 10 ? "%.1f" : "%.2f", x);
  std::string text = s;
  if (!exponent && text.find('.') != text.npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

static std::string amount_text(double amount, std::initializer_list<const char*> units) {
  size_t unit = 0;
  while (amount >= 999.5 && unit + 1 < units.size()) amount /= 1000, ++unit;
  return three_digits(amount) + " " + units.begin()[unit];
}

std::string bytes_text(double bytes) { return amount_text(bytes, {"B", "KB", "MB", "GB", "TB", "PB"}); }
std::string flops_text(double flops) {
  return amount_text(flops, {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"});
}

std::string seconds_text(double s) {
  if (s >= 0.9995) return three_digits(s) + " s";
  if (s >= 0.9995e-3) return three_digits(s * 1e3) + " ms";
  return three_digits(s * 1e6) + " us";
}

}  // namespace weft
