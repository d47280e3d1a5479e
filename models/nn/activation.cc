#include "models/nn/activation.h"

#include "ops/core/creation.h"

namespace weft {

std::vector<int64_t> internal::pad_pairs(const Sizes& padding, int spatial, const char* layer) {
  const Shape pairs = padding.of(2 * spatial, layer, "padding");
  return {pairs.begin(), pairs.end()};
}

}  // namespace weft

namespace weft::nn {

Lambda::Lambda(std::function<Tensor(const Tensor&)> fn, std::source_location loc) : fn_(std::move(fn)) {
  internal::LineScope line(loc);
  WEFT_CHECK(fn_, "Lambda: got no function; need a function of a tensor");
}

Tensor Lambda::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  return call.result(fn_(internal::tensor_of(x, "Lambda")));
}

PReLU::PReLU(int64_t num_parameters, double init, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(num_parameters > 0, "PReLU: num_parameters is ", num_parameters, "; need 1 or more");
  weight = constant_parameter({num_parameters}, init);
  register_parameter("weight", weight);
}

Tensor PReLU::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  return call.result(prelu(x, weight.value()));
}

// The layer owns its copy of the mode's text.
Upsample::Upsample(const InterpolateOptions& options, std::source_location loc)
    : Lambda(
          [options, mode = std::string(options.mode)](const Tensor& x) {
            InterpolateOptions o = options;
            o.mode = mode;
            return interpolate(x, o);
          },
          loc) {}

Unflatten::Unflatten(int64_t dim, const Shape& sizes)
    : Lambda([=](const Tensor& x) {
        const int64_t at = dim < 0 ? dim + x.dim() : dim;
        WEFT_CHECK(at >= 0 && at < x.dim(), "Unflatten: dim ", dim, " is out of range for ", x.type(), "; need ",
                   -x.dim(), " to ", x.dim() - 1);
        // reshape allows one extent of -1, which belongs to this dim: the other extents are numbers.
        int64_t known = 1, open = 0;
        for (int64_t n : sizes) n == -1 ? static_cast<void>(++open) : static_cast<void>(known *= n);
        const int64_t extent = x.size(at);
        WEFT_CHECK(open <= 1 && (open == 0 ? known == extent : known > 0 && extent % known == 0), "Unflatten: sizes ",
                   sizes, " do not make the extent ", extent, " of dim ", dim, " of ", x.type(),
                   "; need sizes with that product, one of them may be -1");
        Shape shape;
        for (int d = 0; d < x.dim(); ++d) {
          if (d != at)
            shape.push_back(x.shape()[d]);
          else
            for (int64_t n : sizes) shape.push_back(n == -1 ? extent / known : n);
        }
        return reshape(x, shape);
      }) {}

}  // namespace weft::nn
