// ConfigMap: a model's configuration as a map from field to text, for checkpoints and flags. A config struct lists its
// fields once, with their allowed values (framework/io/fields/fields.h):
//   template <class F> void fields(F&& f) { f("layers", layers, nn::kLayers); f("dropout", dropout, nn::kShare); }
#pragma once
#include <map>
#include <string>
#include <vector>

#include "framework/base/nearest.h"
#include "framework/base/one_line.h"
#include "framework/io/fields/fields.h"

namespace weft::nn {

/// Numbers are in their shortest exact form; bools are true or false.
using ConfigMap = std::map<std::string, std::string>;

using Allowed = io::Field;
using io::kNotNegative, io::kPositive;
/// Numbers of elements in models are products of these sizes and fit in 63 bits.
inline constexpr Allowed kSize{.least = 1, .most = 1 << 22};
inline constexpr Allowed kSizeOrNone{.least = 0, .most = 1 << 22};
inline constexpr Allowed kHeadDim{.least = 0, .most = 1 << 16};  // 0: dim / heads
inline constexpr Allowed kVocab{.least = 1, .most = 1 << 26};
inline constexpr Allowed kContext{.least = 1, .most = 1 << 30};
inline constexpr Allowed kLayers{.least = 1, .most = 10000};
inline constexpr Allowed kExperts{.least = 1, .most = 1 << 16};
inline constexpr Allowed kShare{.least = 0, .most = 1, .below = true};

template <class Config>
ConfigMap to_map(Config config) {
  ConfigMap map;
  config.fields([&](const char* name, const auto& value, const Allowed& = {}) { map[name] = io::text_of(value); });
  return map;
}

/// Throws InvalidArgument with the field, its value and the needed values; nothing if `need` is empty.
inline void check_field(const std::string& field, const std::string& value, const std::string& need) {
  WEFT_CHECK(need.empty(), "config: field '", field, "' is '", one_line(value, 200), "'; need ", need);
}

/// Throws InvalidArgument: the configuration `known` has no such field.
[[noreturn]] inline void fail_unknown(const std::string& field, const ConfigMap& known) {
  std::string all;
  std::vector<std::string> names;
  for (const auto& [name, value] : known) {
    all += str_cat(all.empty() ? "" : ", ", name);
    names.push_back(name);
  }
  const std::string near = nearest_name(field, names);
  internal::fail(Code::kInvalidArgument,
                 str_cat("config: no field '", field, "'", near.empty() ? "" : str_cat(" (did you mean ", near, "?)"),
                         "; need one of ", all));
}

/// `base` with the fields of `map` replaced. Throws, naming the field, if a field is unknown or its value does not
/// parse.
template <class Config>
Config from_map(const ConfigMap& map, Config base = {}) {
  ConfigMap unknown = map;
  base.fields([&](const char* name, auto& value, const Allowed& = {}) {
    if (const auto it = map.find(name); it != map.end())
      check_field(name, it->second, io::set_text(it->second, value)), unknown.erase(name);
  });
  if (!unknown.empty()) fail_unknown(unknown.begin()->first, to_map(base));
  return base;
}

/// `config` unchanged. Throws, naming the field and its allowed values, if a value is not allowed.
template <class Config>
const Config& checked(const Config& config) {
  Config(config).fields([](const char* name, const auto& value, const Allowed& allowed = {}) {
    check_field(name, io::text_of(value), io::unfit(value, allowed));
  });
  return config;
}

}  // namespace weft::nn
