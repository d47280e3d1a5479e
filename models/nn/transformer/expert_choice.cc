#include "models/nn/transformer/expert_choice.h"

#include <cmath>
#include <numeric>

#include "framework/base/parse_number.h"
#include "framework/dispatch/state/state.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft::nn {

ExpertChoice ExpertChoice::parse(const std::string& text) {
  if (text == "learned") return {};
  if (text == "balanced") return {Law::kBalanced};
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const double value =
      colon == text.npos ? -1 : parse_number<double>(std::string_view(text).substr(colon + 1)).value_or(-1);
  const double most = name == "zipf" ? 10 : 1;
  WEFT_CHECK((name == "zipf" || name == "skew") && value >= 0 && value <= most, "route is '", text, "'; need ", kNeed);
  return {name == "zipf" ? Law::kZipf : Law::kSkew, value};
}

bool ExpertChoice::accepts(const std::string& text) {
  try {
    parse(text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<double> ExpertChoice::shares(int64_t experts) const {
  std::vector<double> p(experts, 1.0);
  for (int64_t e = 0; e < experts; ++e) {
    if (law == Law::kZipf) p[e] = std::pow(static_cast<double>(e + 1), -value);
    if (law == Law::kSkew && experts > 1) p[e] = e == 0 ? value : (1 - value) / static_cast<double>(experts - 1);
  }
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

Tensor ExpertChoice::choose(const Tensor& logits, int64_t top_k) const {
  WEFT_BUG_IF(learned(), "ExpertChoice: the router chooses");
  const int64_t tokens = logits.size(0), experts = logits.size(1);
  const TensorOptions integers{.dtype = kInt64, .device = logits.device()};
  Tensor chosen;
  if (law == Law::kBalanced) {
    chosen = reshape(remainder(arange(tokens * top_k, integers), experts), {tokens, top_k});
  } else {
    // The expert is the number of interval ends at or below a uniform number; the last end is 1.
    std::vector<double> p = shares(experts);
    std::partial_sum(p.begin(), p.end(), p.begin());
    std::vector<float> ends(p.begin(), p.end());
    ends.back() = 1;
    const Tensor u = rand({tokens, top_k, 1}, {.device = logits.device()});
    chosen = sum((u >= Tensor::from_vector<float>(ends, {1, 1, experts}).to(logits.device())).to(kInt64), -1);
  }
  // The result depends on the logits, so that on a mesh each rank chooses for its own tokens.
  NoGrad guard;
  return where(isnan(slice(logits, 1, 0, 1)), zeros({}, integers), chosen);
}

}  // namespace weft::nn
