// config.json of Hugging Face's transformers as a configuration of a family.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/weights/family.h"

namespace weft::weights {

/// The fields of a config.json. Missing and null are the same. Errors name the file and the field.
class ConfigFile {
 public:
  ConfigFile(std::string_view text, std::string what);
  ~ConfigFile();
  const std::string& what() const { return what_; }
  std::vector<std::string> names() const;
  bool has(std::string_view name) const;
  /// A text as it is, and other values as in JSON.
  std::optional<std::string> text(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  /// An object as a file of its own.
  std::optional<ConfigFile> object(std::string_view name) const;
  ConfigFile(ConfigFile&&) noexcept;

 private:
  struct Values;
  std::string what_;
  std::unique_ptr<Values> values_;
};

/// A whole number that a configuration has.
int64_t number(const nn::ConfigMap& config, const std::string& field);

struct HfConfig {
  const Family* family = nullptr;
  const Kind* kind = nullptr;
  nn::ConfigMap config;                // all fields of the program's configuration
  std::vector<std::string> not_known;  // fields of the file that no table has
  /// One sentence about them, or none.
  std::vector<std::string> notes(const std::string& file) const;
};

enum class For { kWeights, kPlan };  // a plan needs only the fields that change costs

/// The values of model_type that tables describe: "gpt2, llama, ...".
std::string model_types(For use = For::kWeights);

/// Reads a config.json. Throws InvalidArgument, naming the file and the field, for other model types and for values
/// that Weft's models do not have. `context`: a shorter context than the file's; 0: the file's.
HfConfig read_config(std::string_view text, const std::string& what, For use, int64_t context = 0);

/// fn(), whose errors "config: field 'dim' is ..." get the name of the file and its name of the field.
nn::ConfigMap with_names(const HfConfig& config, const std::string& what, const std::function<nn::ConfigMap()>& fn);

}  // namespace weft::weights
