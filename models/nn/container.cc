#include "models/nn/container.h"

#include "ops/core/creation.h"

namespace weft::nn {

void Sequential::add(std::unique_ptr<AnyLayer> layer, std::source_location loc) {
  layers_.emplace_back(std::move(layer));
  register_module(std::to_string(layers_.size() - 1), layers_.back().layer().module(), loc);
}

Tensor Sequential::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  Tensor y = internal::tensor_of(x, "Sequential");
  for (const LayerPlace& place : layers_) y = place.layer().call(y);
  return call.result(y);
}

Module& Sequential::layer(size_t i, std::source_location loc) const {
  internal::LineScope line(loc);
  WEFT_CHECK(i < layers_.size(), "Sequential: got index ", i, " of ", layers_.size(), " layers; need a smaller index");
  return layers_[i].layer().module();
}

void Sequential::wrong_type(size_t i, std::source_location loc) const {
  internal::LineScope line(loc);
  internal::fail(Code::kInvalidArgument,
                 str_cat("Sequential: layer ", i, " has another type; need the type with which it was made"));
}

}  // namespace weft::nn
