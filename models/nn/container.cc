#include "models/nn/container.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <typeinfo>

#include "ops/core/creation.h"

namespace weft::nn {
namespace {

std::string after_last(const std::string& text, const char* mark) {
  const size_t at = text.rfind(mark);
  return at == text.npos ? text : text.substr(at + std::strlen(mark));
}

// The name of a layer's type, as the program writes it: "Linear", "Conv2d", "Block".
std::string type_name(const Module& layer) {
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(typeid(layer).name(), nullptr, nullptr, nullptr), std::free);
  const std::string full = text ? text.get() : typeid(layer).name();
  const size_t arguments = full.find('<');
  std::string name = after_last(full.substr(0, arguments), "::");
  if (arguments == full.npos || !full.starts_with("weft::nn::")) return name;
  // ConvLayer<2, weft::nn::ConvTransposeOptions>, BatchNorm<2>
  const std::string dims = full.substr(arguments + 1, full.find_first_of(",>", arguments) - arguments - 1);
  const std::string last = after_last(full.substr(0, full.size() - 1), " ");
  if (last.ends_with("Options")) name = after_last(last.substr(0, last.size() - std::strlen("Options")), "::");
  return name + dims + "d";
}

struct LayerNote final : internal::OriginNote {
  LayerNote(const Module& layer, SourceLine added) : layer(layer), added(added) {}
  std::string text() const override {
    return added.line ? str_cat(type_name(layer), ", added at ", added) : type_name(layer);
  }
  const Module& layer;
  const SourceLine added;
};

}  // namespace

void Sequential::add(std::unique_ptr<AnyLayer> layer, std::source_location loc) {
  layers_.emplace_back(std::move(layer), SourceLine(loc));
  register_module(std::to_string(layers_.size() - 1), layers_.back().layer().module(), loc);
}

Tensor Sequential::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  Tensor y = internal::tensor_of(x, "Sequential");
  for (const LayerPlace& place : layers_) {
    const Module& layer = place.layer().module();
    const LayerNote note(layer, place.added());
    const internal::OriginName name(layer.path(), /*path=*/true, &note);
    y = place.layer().call(y);
  }
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
