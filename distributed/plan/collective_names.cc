#include "distributed/plan/collective_names.h"

#include <algorithm>
#include <cctype>

namespace weft::dist {

std::string title(Collective kind) {
  std::string s(to_string_view(kind));
  std::replace(s.begin(), s.end(), '_', '-');
  return s;
}

const char* to_string(Subject subject) {
  static constexpr const char* kNames[] = {"parameters", "activations", "gradients", "scalars"};
  return kNames[static_cast<int>(subject)];
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
