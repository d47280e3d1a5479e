// ConfigMap: a model's configuration as a map from field to text, for checkpoints and flags. A config struct lists its
// fields once, with their allowed values:
//   template <class F> void fields(F&& f) { f("layers", layers, nn::kLayers); f("dropout", dropout, nn::kShare); }
#pragma once
#include <map>
#include <string>

#include "framework/base/error.h"

namespace weft::nn {

/// Numbers are in their shortest exact form; bools are true or false.
using ConfigMap = std::map<std::string, std::string>;

/// The allowed values of a field of a configuration. No number may be infinite or NaN.
struct Allowed {
  double least = -1e300, most = 1e300;
  bool above = false, below = false;              // exclude `least`, exclude `most`
  const char* words = nullptr;                    // the allowed texts, separated by commas; null: any text
  bool (*accepts)(const std::string&) = nullptr;  // or a function of the text, and
  const char* need = nullptr;                     // the texts that it accepts
};
/// Numbers of elements in models are products of these sizes and fit in 63 bits.
inline constexpr Allowed kSize{.least = 1, .most = 1 << 22};
inline constexpr Allowed kSizeOrNone{.least = 0, .most = 1 << 22};
inline constexpr Allowed kVocab{.least = 1, .most = 1 << 26};
inline constexpr Allowed kContext{.least = 1, .most = 1 << 30};
inline constexpr Allowed kLayers{.least = 1, .most = 10000};
inline constexpr Allowed kExperts{.least = 1, .most = 1 << 16};
inline constexpr Allowed kPositive{.least = 0, .above = true};
inline constexpr Allowed kNotNegative{.least = 0};
inline constexpr Allowed kShare{.least = 0, .most = 1, .below = true};

namespace config_fields {
std::string text_of(int64_t v);
std::string text_of(double v);
std::string text_of(bool v);
inline std::string text_of(const std::string& v) { return v; }
void parse(const std::string& field, const std::string& text, int64_t& out);
void parse(const std::string& field, const std::string& text, double& out);
void parse(const std::string& field, const std::string& text, bool& out);
inline void parse(const std::string&, const std::string& text, std::string& out) { out = text; }
void check(const char* field, int64_t value, const Allowed& allowed);
void check(const char* field, double value, const Allowed& allowed);
void check(const char* field, const std::string& value, const Allowed& allowed);
inline void check(const char*, bool, const Allowed&) {}
[[noreturn]] void fail_unknown(const ConfigMap& map, const ConfigMap& known);
}  // namespace config_fields

template <class Config>
ConfigMap to_map(Config config) {
  ConfigMap map;
  config.fields(
      [&](const char* name, const auto& value, const Allowed& = {}) { map[name] = config_fields::text_of(value); });
  return map;
}

/// `base` with the fields of `map` replaced. Throws, naming the field, if a field is unknown or its value does not
/// parse.
template <class Config>
Config from_map(const ConfigMap& map, Config base = {}) {
  size_t found = 0;
  base.fields([&](const char* name, auto& value, const Allowed& = {}) {
    if (auto it = map.find(name); it != map.end()) config_fields::parse(name, it->second, value), ++found;
  });
  if (found < map.size()) config_fields::fail_unknown(map, to_map(base));
  return base;
}

/// `config` unchanged. Throws, naming the field and its allowed values, if a value is not allowed.
template <class Config>
const Config& checked(const Config& config) {
  Config(config).fields([](const char* name, const auto& value, const Allowed& allowed = {}) {
    config_fields::check(name, value, allowed);
  });
  return config;
}

}  // namespace weft::nn
