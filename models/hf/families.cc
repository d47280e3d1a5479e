#include "models/hf/families.h"

#include <algorithm>

#include "framework/base/error.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"

namespace weft {

const std::vector<const nn::ModelFamily*>& model_families() {
  static const auto* all = new std::vector<const nn::ModelFamily*>{&gpt::family(), &llama::family(), &moe::family()};
  return *all;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const nn::ModelFamily* f : model_families()) names.push_back(f->name);
  return names;
}

const nn::ModelFamily* find_family(std::string_view name) {
  const auto& all = model_families();
  const auto f = std::ranges::find(all, name, &nn::ModelFamily::name);
  return f == all.end() ? nullptr : *f;
}

const nn::ModelFamily& family_named(std::string_view name, std::string_view what) {
  const nn::ModelFamily* f = find_family(name);
  WEFT_CHECK(f, what, " is '", name, "'; need one of ", family_names());
  return *f;
}

}  // namespace weft
