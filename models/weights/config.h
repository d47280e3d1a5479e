// config.json of Hugging Face's transformers as a configuration of a family.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/weights/families/family.h"

namespace weft::weights {

/// The fields of a config.json. Functions return nothing for a missing field and for null. They throw InvalidArgument,
/// naming the file and the field, for values of other types.
class ConfigFile {
 public:
  /// `what`: the file, for errors. Throws InvalidArgument for a text that is not one JSON object.
  ConfigFile(std::string_view text, std::string what);
  ~ConfigFile();
  const std::string& what() const { return what_; }
  /// All fields, sorted; null ones too.
  std::vector<std::string> names() const;
  /// Whether the file has the field, which may be null.
  bool contains(std::string_view name) const;
  /// Whether the field has a value.
  bool has(std::string_view name) const;
  /// A text as it is, and other values as in JSON.
  std::optional<std::string> text(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  /// A list; empty for none.
  std::vector<int64_t> integers(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  /// An object as a file of its own.
  std::optional<ConfigFile> object(std::string_view name) const;
  ConfigFile(ConfigFile&&) noexcept;

 private:
  struct Values;
  ConfigFile(std::unique_ptr<Values> values, std::string what);
  std::string what_;
  std::unique_ptr<Values> values_;
};

/// A field of a configuration as a number. Throws InvalidArgument, naming the field, for other texts and numbers.
int64_t number(const nn::ConfigMap& config, const std::string& field, const nn::Allowed& allowed = nn::kSizeOrNone);

/// A config.json as the configuration of a family.
struct HfConfig {
  const Family* family = nullptr;
  const Kind* kind = nullptr;
  nn::ConfigMap config;                      // all fields of the program's configuration
  std::map<std::string, std::string> names;  // the file's name of each field that the file decides
  std::vector<std::string> not_known;        // fields of the file that no table has, on one line each
  /// One sentence about the unknown fields, or none.
  std::vector<std::string> notes(const std::string& file) const;
};

enum class For { kWeights, kPlan };  // a plan needs only the fields that change costs

/// The values of model_type that tables describe: "gpt2, llama, ...".
std::string model_types(For use = For::kWeights);

/// Reads a config.json. Throws InvalidArgument, naming the file and the field, for other model types and for values
/// that Weft's models do not have. `context`: a shorter context than the file's; 0: the file's.
HfConfig read_config(std::string_view text, const std::string& what, For use, int64_t context = 0);

/// Throws `e`, in which the name of the file and its name of the field replace "config: field 'dim'".
[[noreturn]] void fail_with_names(const HfConfig& config, const std::string& what, const Error& e);

/// fn(), whose errors get these names. `what`: the file.
template <class F>
auto with_names(const HfConfig& config, const std::string& what, const F& fn) {
  try {
    return fn();
  } catch (const Error& e) {
    fail_with_names(config, what, e);
  }
}

}  // namespace weft::weights
