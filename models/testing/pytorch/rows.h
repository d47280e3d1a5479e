// The rows of cases.txt and everyday.txt as C++ (made by cases.py), and the functions that they call. make_fixtures.py
// has the same functions for PyTorch.
#pragma once
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "weft.h"

namespace weft::testing::pytorch {

enum Tag : unsigned {
  kEager = 1,    // not in a compiled function
  kShape = 2,    // random: only dtypes and shapes are compared
  kLoose = 4,    // PyTorch computes a part in f32
  kAutocast = 8  // f32 operands under Autocast(kBFloat16): only dtypes and shapes are compared
};

struct Row {
  const char* place;  // "cases.txt:12"
  const char* weft;
  const char* torch;  // "": the row only compiles and runs
  unsigned tags;
  std::vector<std::string> operands;  // the operands in the row
  std::vector<Tensor> (*run)(std::span<const Tensor> in);
};
std::vector<Row>& all_rows();
struct AddRows {
  AddRows(const std::vector<Row>& rows) { all_rows().insert(all_rows().end(), rows.begin(), rows.end()); }
};

/// A declaration `let NAME DTYPE[SHAPE] LO HI`, or `= VALUES`.
struct OperandText {
  std::string name, dtype;
  Shape shape;
  std::vector<double> numbers;
  bool literal;
};
std::vector<OperandText> operand_texts();

/// Numbers of (0, 1), exact in f32, distinct for up to 1021: the same as grid() of make_fixtures.py.
std::vector<double> grid(const std::string& name, int64_t count);

/// Multiplies floating-point operands and parameters by 1 + step or 1 - step. `pattern`: 0 for none, or the number of a
/// pattern of signs.
std::vector<double> perturbed(std::vector<double> values, int pattern, double step = 0x1p-24);

/// The inputs of an evaluation of a row besides its operands.
struct Context {
  DType dtype = kFloat64;
  int pattern = 0;
  bool capturing = false;
  std::vector<nn::Module> layers;  // in the order of FILLED
  /// The values of make_fixtures.py, in this dtype.
  void fill(const nn::Module& layer) const;
};
Context& context();

template <class Make>
auto& filled(const Make& make) {
  static auto layer = make();  // one for each FILLED: a type of lambda is one place
  if (!context().capturing) {
    context().fill(layer);
    context().layers.push_back(layer);
  }
  return layer;
}
/// A layer with values that depend only on the names of its parameters.
#define FILLED(...) filled([] { return __VA_ARGS__; })

/// Weight and bias of a Linear layer after some steps.
template <class Options>
std::vector<Tensor> trained(int steps, const Options& options) {
  nn::Linear layer(4, 3);
  context().fill(layer);
  std::vector<Parameter> parameters = layer.parameters();
  if constexpr (std::is_same_v<Options, optim::MuonOptions>) parameters = {layer.weight};
  const auto operand = [](const char* name) {
    std::vector<double> v = grid(name, 16);
    for (double& a : v) a = 4 * a - 2;
    return Tensor::from_vector<double>(perturbed(v, context().pattern), {4, 4}).to(context().dtype);
  };
  const Tensor x = operand("x"), y = operand("y").slice(1, 0, 3);
  const auto loss = [&] { return square(layer(x) - y).mean(); };
  if constexpr (std::is_same_v<Options, optim::LBFGSOptions>) {
    optim::LBFGS opt(parameters, options);
    for (int i = 0; i < steps; ++i) opt.step(loss);
  } else {
    optim::OptimizerWith<Options> opt(parameters, options);
    for (int i = 0; i < steps; ++i) opt.minimize(loss());
  }
  return {layer.weight.value().detach(), layer.bias.value().detach()};
}

/// The learning rates of the first steps.
template <class Schedule>
Tensor rates(const Schedule& schedule, int64_t steps) {
  std::vector<double> out;
  for (int64_t i = 0; i < steps; ++i) out.push_back(schedule.at(i));
  return Tensor::from_vector<double>(out, {steps});
}

template <class T>
void add_outs(const T& v, std::vector<Tensor>& out) {
  if constexpr (std::is_same_v<T, bool>) {
    out.push_back(Tensor::from_vector<bool>({v}, {}));
  } else if constexpr (std::is_integral_v<T>) {
    out.push_back(Tensor::from_vector<int64_t>({static_cast<int64_t>(v)}, {}));
  } else if constexpr (std::is_floating_point_v<T>) {
    out.push_back(Tensor::from_vector<double>({v}, {}));
  } else if constexpr (std::is_same_v<T, Shape>) {
    out.push_back(Tensor::from_vector<int64_t>({v.begin(), v.end()}, {v.size()}));
  } else if constexpr (std::is_same_v<T, std::vector<float>> || std::is_same_v<T, std::vector<double>>) {
    out.push_back(Tensor::from_vector(v, {static_cast<int64_t>(v.size())}));
  } else {
    flatten(v, out);
  }
}
/// Made with braces, which evaluate from left to right: the layers of a row are in its order.
struct Outs {
  std::vector<Tensor> tensors;
  template <class... T>
  explicit Outs(const T&... v) {
    (add_outs(v, tensors), ...);
  }
};

}  // namespace weft::testing::pytorch
