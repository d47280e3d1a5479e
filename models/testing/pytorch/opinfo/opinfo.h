// Samples of PyTorch's OpInfo, ModuleInfo and OptimizerInfo entries, and the rows of rows.txt as C++ (by opinfo.py).
#pragma once
#include <map>
#include <memory>

#include "models/testing/pytorch/rows.h"

namespace weft::testing::pytorch {

/// An argument of a sample: the member that its type needs is set.
struct Argument {
  char type;  // T tensor, L tensors, I integer, B bool, F number, D and V integers, s text, t dtype, X indices
  std::vector<Tensor> tensors;
  std::vector<bool> leaf;  // whether the sample has a gradient of the tensor
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  std::string text;
  DType dtype = kFloat32;
  std::vector<TensorIndex> indices;
};

/// The arguments of a sample by name.
class Inputs {
 public:
  std::map<std::string, Argument> all;
  /// The layer of a row. A capture gets it from the eager evaluation.
  mutable std::shared_ptr<nn::Module> module;

  template <class T>
  void read(const char* name, T& v) const {
    const Argument* const a = find(name);
    if (!a) return;
    if constexpr (std::is_same_v<T, Tensor>)
      v = a->tensors.at(0);
    else if constexpr (std::is_same_v<T, std::vector<Tensor>>)
      v = a->tensors;
    else if constexpr (std::is_same_v<T, double>)
      v = a->numbers.at(0);
    else if constexpr (std::is_same_v<T, std::vector<double>>)
      v = a->numbers;
    else if constexpr (std::is_integral_v<T>)
      v = static_cast<T>(a->integers.at(0));
    else if constexpr (std::is_same_v<T, std::string>)
      v = a->text;
    else if constexpr (std::is_same_v<T, DType>)
      v = a->dtype;
    else if constexpr (std::is_same_v<T, std::vector<TensorIndex>>)
      v = a->indices;
    else
      v = T(a->integers);
  }
  template <class T>
  void read(const char* name, std::optional<T>& v) const {
    if (find(name)) read(name, v.emplace());
  }
  /// A tensor or a number; `fallback` if the sample lacks it.
  Arg arg(const char* name, double fallback) const;
  /// The layer that `make` returns, with the sample's parameters, buffers and mode.
  template <class Make>
  const auto& layer(const Make& make) const {
    using Layer = decltype(make());
    if (!module) {
      module = std::make_shared<Layer>(make());
      fill_module();
    }
    return static_cast<const Layer&>(*module);
  }

 private:
  void fill_module() const;
  const Argument* find(const char* name) const {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : &found->second;
  }
};

#define LAYER(...) in.layer([&] { return __VA_ARGS__; })

struct OpInfoRow {
  const char* head;  // "clamp(T x, A min, A max)"
  std::vector<Tensor> (*run)(const Inputs& in);
};
std::vector<OpInfoRow>& opinfo_rows();
struct AddOpInfoRows {
  AddOpInfoRows(const std::vector<OpInfoRow>& rows) {
    opinfo_rows().insert(opinfo_rows().end(), rows.begin(), rows.end());
  }
};

/// The positions of index_put.
inline std::vector<TensorIndex> indices(const std::vector<Tensor>& at) { return {at.begin(), at.end()}; }
/// The results that a call of torch.unique requests.
inline std::vector<Tensor> asked(const Unique& u, bool inverse, bool counts) {
  std::vector<Tensor> out{u.values};
  if (inverse) out.push_back(u.inverse);
  if (counts) out.push_back(u.counts);
  return out;
}
/// The last extents of output_size, which in PyTorch's max_unpool may contain all extents of the result.
inline Shape spatial(const Shape& output_size, int64_t dims) {
  Shape out;
  for (int64_t i = std::max<int64_t>(output_size.size() - dims, 0); i < output_size.size(); ++i)
    out.push_back(output_size[i]);
  return out;
}
/// The extents of an adaptive pool, with x's own for -1.
inline Shape given(Shape size, const Tensor& x) {
  for (int i = 0; i < size.size(); ++i)
    if (size[i] < 0) size[i] = x.size(i - size.size());
  return size;
}
/// The scores of linear_cross_entropy, whose weight [classes, dims.., in] may have dims of a loss in several dims.
inline Tensor scores(const Tensor& x, const Tensor& w, const Tensor& bias) {
  if (w.dim() == 2) return linear(x, w, bias);
  Shape shape{x.size(0)};
  for (int d = 0; d + 1 < w.dim(); ++d) shape.push_back(w.size(d));
  return linear(x, w.reshape({-1, w.size(-1)}), bias.defined() ? bias.flatten() : bias).reshape(shape);
}
/// The first half of a list, or the second.
inline Shape half(const std::vector<int64_t>& all, size_t which) {
  const auto begin = all.begin() + static_cast<int64_t>(which * all.size() / 2);
  return Shape(std::vector<int64_t>(begin, begin + static_cast<int64_t>(all.size() / 2)));
}
/// The state of an LSTM, of which PyTorch makes a pair.
template <class State>
State state_of(const std::vector<Tensor>& pair) {
  return pair.empty() ? State{} : State{pair.at(0), pair.at(1)};
}
inline std::array<double, 2> two(const std::vector<double>& v) { return {v.at(0), v.at(1)}; }
/// p after steps with the gradients g.
template <class Options>
std::vector<Tensor> stepped(const Tensor& p, const std::vector<Tensor>& g, const Options& options) {
  const Parameter weight(p);
  std::vector<Tensor> out;
  const auto add = [&] { out.push_back(weight.value().detach()); };
  if constexpr (std::is_same_v<Options, optim::LBFGSOptions>) {
    optim::LBFGS optimizer({weight}, options);
    for (size_t i = 0; i < g.size(); ++i, add())
      optimizer.step([&] { return sum(square(weight - g[0]) * (1 + square(g[1]))); });
  } else {
    optim::OptimizerWith<Options> optimizer(std::vector<Parameter>{weight}, options);
    for (const Tensor& step : g) optimizer.minimize(sum(weight * step)), add();
  }
  return out;
}
/// The spatial extents of x times the factors: recompute_scale_factor gives interpolate these extents only.
inline Shape scaled(const Tensor& x, const std::vector<double>& factor) {
  Shape out;
  for (int64_t d = 2; d < x.dim(); ++d)
    out.push_back(static_cast<int64_t>(static_cast<double>(x.size(d)) *
                                       factor[factor.size() == 1 ? 0 : static_cast<size_t>(d - 2)]));
  return out;
}

}  // namespace weft::testing::pytorch
