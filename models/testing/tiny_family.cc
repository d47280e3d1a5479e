#include "models/testing/tiny_family.h"

#include <string>
#include <utility>
#include <vector>

#include "models/gpt/model.h"

namespace weft::testing {

const nn::ModelFamily& tiny_family() {
  static const std::vector<std::pair<std::string, gpt::Config>> table = {
      {"tiny", {.vocab = 64, .context = 16, .layers = 1, .heads = 2, .dim = 16, .ffn = 32, .dropout = 0.1}}};
  static const nn::ModelFamily family = nn::make_family<gpt::Model>(table);
  return family;
}

}  // namespace weft::testing
