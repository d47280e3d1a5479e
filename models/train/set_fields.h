// --set FIELD=VALUE of programs that make a model from a configuration.
#pragma once
#include "framework/cli/cli.h"
#include "models/nn/transformer/language_model.h"

namespace weft::train {

/// The flag --set.
Flag field_flag(Settings& fields);

/// `config` with these fields. Throws UsageError, naming the field and its allowed values, for an unknown field and for
/// a value that is not allowed.
nn::ConfigMap set_fields(const nn::ModelFamily& family, const nn::ConfigMap& config, const Settings& fields);

}  // namespace weft::train
