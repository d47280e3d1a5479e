#include "models/hf/families.h"

#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"

namespace weft {

const std::vector<const nn::ModelFamily*>& model_families() {
  static const auto* all = new std::vector<const nn::ModelFamily*>{&gpt::family(), &llama::family(), &moe::family()};
  return *all;
}

}  // namespace weft
