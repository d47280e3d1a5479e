// ConfigMap: a model's configuration as a map from field to text, for checkpoints and flags. A config struct lists its
// fields once:
//   template <class F> void fields(F&& f) { f("layers", layers); f("dropout", dropout); }
#pragma once
#include <map>
#include <string>

#include "framework/base/error.h"

namespace weft::nn {

/// Numbers are in their shortest exact form; bools are true or false.
using ConfigMap = std::map<std::string, std::string>;

namespace config_fields {
std::string text_of(int64_t v);
std::string text_of(double v);
std::string text_of(bool v);
inline std::string text_of(const std::string& v) { return v; }
void parse(const std::string& field, const std::string& text, int64_t& out);
void parse(const std::string& field, const std::string& text, double& out);
void parse(const std::string& field, const std::string& text, bool& out);
inline void parse(const std::string&, const std::string& text, std::string& out) { out = text; }
[[noreturn]] void fail_unknown(const ConfigMap& map, const ConfigMap& known);
}  // namespace config_fields

template <class Config>
ConfigMap to_map(Config config) {
  ConfigMap map;
  config.fields([&](const char* name, const auto& value) { map[name] = config_fields::text_of(value); });
  return map;
}

/// `base` with the fields of `map` replaced. Throws, naming the field, if it is unknown or its value does not parse.
template <class Config>
Config from_map(const ConfigMap& map, Config base = {}) {
  size_t found = 0;
  base.fields([&](const char* name, auto& value) {
    if (auto it = map.find(name); it != map.end()) config_fields::parse(name, it->second, value), ++found;
  });
  if (found < map.size()) config_fields::fail_unknown(map, to_map(base));
  return base;
}

}  // namespace weft::nn
