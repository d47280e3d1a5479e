#include "tools/bench/model.h"

#include <map>

#include "models/hf/families.h"

namespace weft::bench {

Decoder make_decoder(const std::string& name, const nn::ConfigMap& fields) {
  static const std::map<std::string, int64_t> batches{{"gpt_tiny", 12}, {"gpt_base", 16}, {"moe_small", 16}};
  const auto batch = batches.find(name);
  WEFT_CHECK_AS(kNotFound, batch != batches.end(), "no configuration '", name,
                "'; need gpt_tiny, gpt_base, moe_small, resnet or lstm");
  const nn::ModelFamily& family = family_named(name.substr(0, name.find('_')));
  return {family.make(family.with_fields(family.preset(name), fields)), batch->second};
}

}  // namespace weft::bench
