#include "distributed/plan/collective_names.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

namespace weft::dist {
namespace {

std::string three_digits(double x) {
  char s[32];
  std::snprintf(s, sizeof s, x >= 100 ? "%.0f" : x >= 10 ? "%.1f" : "%.2f", x);
  std::string text = s;
  if (text.find('.') != text.npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

}  // namespace

std::string title(Collective kind) {
  std::string s(to_string_view(kind));
  std::replace(s.begin(), s.end(), '_', '-');
  return s;
}

const char* to_string(Phase phase) {
  static constexpr const char* kNames[] = {"forward", "backward", "update"};
  return kNames[static_cast<int>(phase)];
}

const char* to_string(Subject subject) {
  static constexpr const char* kNames[] = {"parameters", "activations", "gradients"};
  return kNames[static_cast<int>(subject)];
}

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) bytes /= 1000, ++unit;
  return three_digits(bytes) + " " + kUnits[unit];
}

std::string seconds_text(double s) {
  if (s >= 0.9995) return three_digits(s) + " s";
  if (s >= 0.9995e-3) return three_digits(s * 1e3) + " ms";
  return three_digits(s * 1e6) + " us";
}

std::vector<std::string> dimensions_of(const std::string& axes) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= axes.size();) {
    const size_t end = std::min(axes.find(',', at), axes.size());
    std::string name = axes.substr(at, end - at);
    name = name.substr(0, name.find(':'));
    if (!name.empty() && std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
    at = end + 1;
  }
  return out;
}

std::string layers_as_one(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    const bool begins = i == 0 || name[i - 1] == '.' || name[i - 1] == '/';
    size_t end = i;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
    const bool alone =
        begins && end > i && (end == name.size() || name[end] == '.' || name[end] == '/' || name[end] == ':');
    if (alone) {
      out += '*';
      i = end;
    } else {
      out += name[i++];
    }
  }
  return out;
}

}  // namespace weft::dist
