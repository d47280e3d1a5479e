// ConfigMap: a model's configuration as text by field, for checkpoints and flags. A config struct lists its fields once:
//   template <class F> void fields(F&& f) { f("layers", layers); f("dropout", dropout); }
#pragma once
#include <map>
#include <string>

#include "framework/base/error.h"

namespace weft::nn {

/// Numbers in their shortest exact form, bools as true or false.
using ConfigMap = std::map<std::string, std::string>;

namespace internal {
std::string config_text(int64_t v);
std::string config_text(double v);
std::string config_text(bool v);
inline std::string config_text(const std::string& v) { return v; }
void config_parse(const std::string& field, const std::string& text, int64_t& out);
void config_parse(const std::string& field, const std::string& text, double& out);
void config_parse(const std::string& field, const std::string& text, bool& out);
inline void config_parse(const std::string&, const std::string& text, std::string& out) { out = text; }
[[noreturn]] void config_unknown(const ConfigMap& map, const ConfigMap& known);
}  // namespace internal

template <class Config>
ConfigMap to_map(Config config) {
  ConfigMap map;
  config.fields([&](const char* name, const auto& value) { map[name] = internal::config_text(value); });
  return map;
}

/// `base` with the fields in `map` replaced; throws naming an unknown field or a value of the wrong kind.
template <class Config>
Config from_map(const ConfigMap& map, Config base = {}) {
  size_t found = 0;
  base.fields([&](const char* name, auto& value) {
    if (auto it = map.find(name); it != map.end()) internal::config_parse(name, it->second, value), ++found;
  });
  if (found < map.size()) internal::config_unknown(map, to_map(base));
  return base;
}

}  // namespace weft::nn
