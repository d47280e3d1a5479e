#include "models/train/set_fields.h"

namespace weft::train {

Flag field_flag(Settings& fields) {
  return {
      "set", &fields,
      "a field of the configuration and its value, as layers=2 or layers=2,dim=64; repeat the flag for more fields; "
      "an unknown field lists all"};
}

nn::ConfigMap set_fields(const nn::ModelFamily& family, const nn::ConfigMap& config, const Settings& fields) {
  try {
    return family.with_fields(config, fields);
  } catch (const Error& e) {
    const std::string_view error = e.what(), prefix = "config: ";
    usage_error(str_cat("--set: ", error.starts_with(prefix) ? error.substr(prefix.size()) : error));
  }
}

}  // namespace weft::train
