#include "models/testing/pytorch/rows.h"

namespace weft::testing::pytorch {

std::vector<Row>& all_rows() {
  static std::vector<Row> rows;
  return rows;
}

Context& context() {
  static Context c;
  return c;
}

std::vector<double> grid(const std::string& name, int64_t count) {
  int64_t seed = 0;
  for (char c : name) seed += c;
  std::vector<double> out;
  for (int64_t e = 0; e < count; ++e) {
    const int64_t a = (e * 619 + seed * 97) % 1021, cube = a * a * a % 1021;
    out.push_back(static_cast<double>(2 * (cube * cube * a % 1021) + 1) / 2048);
  }
  return out;
}

std::vector<double> perturbed(std::vector<double> values, int pattern, double step) {
  if (pattern == 0) return values;
  uint64_t bits = static_cast<uint64_t>(pattern);
  for (double& v : values) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    v *= bits >> 63 ? 1 + step : 1 - step;
  }
  return values;
}

void Context::fill(const nn::Module& layer) const {
  layer.to(dtype);
  for (const auto& [name, cell] : layer.named_cells()) {
    if (!is_floating(cell.dtype())) {
      cell.set(zeros(cell.shape(), {.dtype = cell.dtype()}));
      continue;
    }
    std::vector<double> values = grid(name, cell.numel());
    for (double& v : values) v += name.ends_with("running_var") ? 0.5 : -0.5;
    cell.set(Tensor::from_vector<double>(perturbed(values, pattern), cell.shape()).to(cell.dtype()));
  }
}

}  // namespace weft::testing::pytorch
